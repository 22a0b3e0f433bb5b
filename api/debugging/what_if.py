"""What would be, had some events not come, said something else, or others come: folded in memory, never recorded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pydantic import BaseModel

from api.debugging.changes import appended, check_seqs, replaced
from api.debugging.history import WINDOW
from api.debugging.moment import Fold, Moment, beginning, moment_of
from api.debugging.patch import json_patch
from api.debugging.possible import refusal
from api.debugging.seen import Json
from domain.errors import InvalidInput
from domain.events import AssistantMsg
from domain.summary_events import SummaryRecorded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from api.debugging.changes import Changes
    from api.debugging.history import History
    from domain.conversation import Conversation
    from domain.event_envelope import ConversationEvent
    from projections.event import Event

MOST_EVENTS = 2_000
"""After the first one that is changed: more would keep others on the event loop waiting."""
MOST_BYTES = 16 * 1024 * 1024
"""Of their data."""
_FOLLOWS_BY_ITSELF = {"turn_started", "turn_resumed", "assistant_msg"}
"""What the state alone allows: it needs no certain event to be its cause."""
_HEARD = {"user_msg", "assistant_msg", "tool_call", "tool_result", "conversation_started", "conversation_changed"}


class Doubt(BaseModel):
    """An event that is left out as `impossible`, or that is kept though nobody knows whether it would have come so."""

    seq: int
    type: str
    reason: str


class Reality(BaseModel):
    """How far the real log went, and what it owed then."""

    seq: int
    owes: list[Json]


class WhatIf(Moment):
    """What would be after the last event, or after `at`.

    `patch` (RFC 6902) leads to its `state` from the real one, `view_patch` to its `owes`, `working_set` and `messages`
    from the real ones (the working sets of both are reconstructed). Events that can no longer follow are left out, and
    named as `impossible`. `uncertain` are replies and summaries that are kept although their request would have been
    another one, so that the model might have said something else.
    """

    patch: list[Json]
    view_patch: list[Json]
    impossible: list[Doubt]
    uncertain: list[Doubt]
    reality: Reality


async def what_if(history: History, changes: Changes, *, default_model: str) -> WhatIf:
    """Fold a conversation with changes to its log. Nothing is recorded, and nothing but the log is read.

    Raises `ConversationNotFound`, `InvalidRequest` for changes that do not fit, `InvalidInput` where too much of the
    log follows on the first one.
    """
    last_seq = await history.last_seq()
    check_seqs(changes, last_seq)
    at = changes.at or last_seq
    first = min(changes.seqs, default=at)
    if at - first > MOST_EVENTS:
        raise InvalidInput("at", f"more than {MOST_EVENTS:,} events follow on {first}: look at an earlier one")
    events = await history.window(first, WINDOW)
    size = 0
    async for page in history.pages(events[-1].seq, at):
        events += page
        size += sum(len(event.stored.data) for event in page)
        if size > MOST_BYTES:
            raise InvalidInput(
                "at", f"too large is what follows on {first}: look at an earlier one than {page[-1].seq}"
            )
    conversation = await beginning(history, events)
    summaries = await history.summaries(events[-1])
    return await asyncio.to_thread(_what_if, conversation, events, changes, summaries, last_seq, default_model)


def _what_if(
    conversation: Conversation,
    events: Sequence[Event],
    changes: Changes,
    summaries: Sequence[ConversationEvent],
    last_seq: int,
    default_model: str,
) -> WhatIf:
    real, other = _Course(conversation.copied()), _Course(conversation)
    for event in events:
        refused = refusal(event.decoded, real.fold.conversation)
        real.take(event)
        if event.seq in changes.drop:
            other.leave_out(event)
        elif event.seq in changes.replace:
            other.take_changed(replaced(event, changes.replace[event.seq]), event)
        else:
            other.take_if_possible(event, whatever=refused is not None)
    newest = events[-1]
    for index, change in enumerate(changes.append):
        newest = appended(change, newest, conversation.owner, index)
        other.take_if_possible(newest)
    was, would_be = (
        moment_of(one.fold, one.taken, one.rows.values(), summaries, last_seq=last_seq, default_model=default_model)
        for one in (real, other)
    )
    return WhatIf(
        **dict(would_be),
        patch=json_patch(was.state, would_be.state),
        view_patch=json_patch(_view(was), _view(would_be)),
        impossible=other.impossible,
        uncertain=[*other.uncertain, *other.doubtful(summaries)],
        reality=Reality(seq=was.seq, owes=was.owes),
    )


def _view(moment: Moment) -> Json:
    return {"owes": moment.owes, "working_set": moment.working_set.model_dump(), "messages": moment.messages}


class _Course:
    """One way that a conversation goes: what it took in, and what could not follow."""

    def __init__(self, conversation: Conversation) -> None:
        self.fold = Fold(conversation)
        self.taken: list[Event] = []
        self.rows: dict[str, Json] = {}
        self.impossible: list[Doubt] = []
        self.uncertain: list[Doubt] = []
        self._missing: dict[str, int] = {}
        self._otherwise: int | None = None
        """The first seq at which the model would have read something else."""

    def take(self, event: Event) -> None:
        """Evolve by the event; those before it may have been left out, so that there is a gap."""
        self.fold.conversation.version = event.seq - 1
        self.rows |= {row["id"]: row for row in self.fold.take(event)}
        self.taken.append(event)

    def take_if_possible(self, event: Event, *, whatever: bool = False) -> None:
        """Take the event, or leave out what cannot follow; `whatever`: it could not in the real log either."""
        reason = self._not_caused(event) or (None if whatever else refusal(event.decoded, self.fold.conversation))
        if reason is not None:
            self.impossible.append(Doubt(seq=event.seq, type=event.type, reason=reason))
            self.leave_out(event)
            return
        decoded = event.decoded
        if isinstance(decoded, AssistantMsg) and self._otherwise is not None and decoded.context_seq >= self._otherwise:
            reason = f"its request would have been another one from event {self._otherwise} on"
            self.uncertain.append(Doubt(seq=event.seq, type=event.type, reason=reason))
        self.take(event)

    def take_changed(self, event: Event, real: Event) -> None:
        """Take an event that says something else than it did, if it says anything else and can follow."""
        if event.data != real.data:
            self._heard_otherwise(event)
        self.take_if_possible(event)

    def leave_out(self, event: Event) -> None:
        """Go on without the event."""
        self._missing[str(event.event_id)] = event.seq
        self._heard_otherwise(event)

    def doubtful(self, summaries: Iterable[ConversationEvent]) -> list[Doubt]:
        """Return the summaries of what would have been another conversation, each by its `to_seq`."""
        return [
            Doubt(seq=one.to_seq, type=one.wire_type, reason=f"it sums up what is changed from {self._otherwise} on")
            for one in summaries
            if isinstance(one, SummaryRecorded) and self._otherwise is not None and one.to_seq >= self._otherwise
        ]

    def _not_caused(self, event: Event) -> str | None:
        """Say what the event follows from that is not there; what the state alone allows needs no certain cause."""
        if event.type in _FOLLOWS_BY_ITSELF or (event.type == "turn_ended" and event.data["outcome"] != "completed"):
            return None
        cause = self._missing.get(str(event.metadata.get("causation_id")))
        return None if cause is None else f"event {cause} is not there, from which it follows"

    def _heard_otherwise(self, event: Event) -> None:
        if self._otherwise is None and (event.type in _HEARD or event.data.get("partial_text")):
            self._otherwise = event.seq
