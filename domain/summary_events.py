"""The events of a conversation's sibling stream: what its older part was summarised to, for the model's eyes.

A compaction costs money and is not deterministic: so it is recorded, and the conversation's own stream stays untouched.
Whoever deletes a conversation deletes this stream first: then nothing comes here after the conversation's end.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from domain.event_envelope import ConversationEvent
from domain.events import Resource
from domain.usage import Usage

CompactionStrategy = Literal["llm", "window", "none"]
SUMMARY_VERSION = 1
"""Of the form of a summary's content; it grows with every change of what the model is asked for."""


class SummaryRequested(ConversationEvent):
    """Somebody wants the conversation to be compacted now."""

    wire_type = "summary_requested"


class SummaryRecorded(ConversationEvent):
    """Up to `to_seq`, the end of a turn, this stands for the conversation; the events from `from_seq` on went into it.

    `based_on` is the `to_seq` of the summary that it continues. `carried` are the seqs of messages before `to_seq` that
    no turn had answered there: they are not in it. `context_seq` is how much of the log was looked at.
    """

    wire_type = "summary_recorded"

    from_seq: int
    to_seq: int
    content: str
    version: int
    strategy: CompactionStrategy
    model: str | None = None
    usage: Usage | None = None
    tokens_before: int
    based_on: int | None = None
    carried: list[int] = Field(default_factory=list)
    context_seq: int
    resources: list[Resource] = Field(default_factory=list)


class SummaryRevoked(ConversationEvent):
    """The summary that ends at `to_seq`, and those that were built on it, are as if they had never been."""

    wire_type = "summary_revoked"

    to_seq: int


class SummaryFailed(ConversationEvent):
    """A summary was asked for in vain: it was refused, or another one was first. This is what it used."""

    wire_type = "summary_failed"

    usage: list[Usage]


SUMMARY_EVENT_TYPES: dict[str, type[ConversationEvent]] = {
    event.wire_type: event for event in (SummaryRequested, SummaryRecorded, SummaryRevoked, SummaryFailed)
}
"""Wire type → event class."""
