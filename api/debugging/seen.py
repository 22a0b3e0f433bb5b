"""What a model saw, or would have seen, after an event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from domain.compaction import after, budget_of, first_needed
from domain.summaries import recorded_in, state_of
from domain.tokens import tokens_of
from domain.working_set import WorkingSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.debugging.history import SentMessages
    from domain.conversation import Conversation
    from domain.event_envelope import ConversationEvent
    from domain.summary_events import SummaryRecorded
    from projections.event import Event

Json = dict[str, Any]


class SeenByModel(BaseModel):
    """What a request to the model would have held after an event, in the format of OpenAI's chat completions.

    `exact`: it is what was really sent to the model that saw the log up to here and no further (the `context_seq` of
    its reply), as the audit kept it; else it was made anew of the log, without what hooks put in. `complete`: nothing
    is left out at its beginning. `unanswered` names the calls without a result: while there is one no model is called.
    """

    exact: bool
    complete: bool
    model: str
    summary_to_seq: int | None
    unanswered: list[str]
    tokens: int
    messages: list[Json]


def seen_by_model(
    conversation: Conversation,
    events: Sequence[Event],
    summaries: Sequence[ConversationEvent],
    *,
    default_model: str,
) -> SeenByModel:
    """Make anew what a model would have been sent after these events, which end where the conversation stands.

    An open turn keeps the settings and the summary that it began with. Raises `UnansweredCall` for a log in which a
    turn went on without a result.
    """
    turn = conversation.turn
    settings = turn.settings if turn else conversation.settings
    summary = _summary(conversation, summaries)
    model = settings.get("model") or default_model
    whole = WorkingSet(
        system_prompt=settings.get("system_prompt"),
        model=model,
        summary=summary.content if summary else None,
        result_bytes=budget_of(settings, None).result_bytes,
    )
    whole.fold(after(summary, [event.decoded for event in events]))
    return SeenByModel(
        exact=False,
        complete=not events or events[0].seq <= first_needed(summary),
        model=model,
        summary_to_seq=summary.to_seq if summary else None,
        unanswered=whole.unanswered,
        tokens=whole.tokens(),
        messages=whole.messages(unanswered=True),
    )


def as_sent(sent: SentMessages, summary_to_seq: int | None) -> SeenByModel:
    """Return what a model was really sent."""
    return SeenByModel(
        exact=True,
        complete=True,
        model=sent.model,
        summary_to_seq=summary_to_seq,
        unanswered=[],
        tokens=tokens_of(sent.messages),
        messages=sent.messages,
    )


def _summary(conversation: Conversation, summaries: Sequence[ConversationEvent]) -> SummaryRecorded | None:
    if conversation.turn is None:
        return state_of(summaries).latest
    to_seq = conversation.turn.summary_to_seq
    return None if to_seq is None else recorded_in(summaries, to_seq)
