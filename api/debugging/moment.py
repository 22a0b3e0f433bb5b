"""Everything at one seq of a conversation: its state, what it owed, what the model would have seen, what people saw.

Folded from the log alone, in memory; the live tables are never looked at.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pydantic import BaseModel

from api.debugging.history import WINDOW
from api.debugging.seen import Json, SeenByModel, as_sent, seen_by_model
from domain.conversation import Conversation
from domain.errors import InvalidInput
from domain.events import ConversationChanged, ConversationStarted, TurnStarted
from domain.owes import AwaitInput, CallModel, CloseTurn, Expire, Owed, RunTools, StartTurn, owes
from domain.snapshots import dump
from projections.display_messages import DISPLAY_MESSAGES
from projections.messages import item_of
from projections.projection import Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from api.debugging.history import History
    from domain.event_envelope import ConversationEvent
    from projections.event import Event

_KINDS: dict[type[Owed], str] = {
    StartTurn: "start_turn",
    CallModel: "call_model",
    RunTools: "run_tools",
    AwaitInput: "await_input",
    Expire: "expire",
    CloseTurn: "close_turn",
}


class Moment(BaseModel):
    """A conversation right after its event `seq`; 0 is before the first one.

    `owes` is what the log owed at `occurred_at`, the event's own time: a deadline that has passed since is still ahead.
    `amid`: the next event came in the same append, so that nobody has ever seen the log end here.
    Of a long conversation `working_set` and `messages` (what people saw) begin with the event `from_seq`.
    """

    conversation_id: UUID
    seq: int
    last_seq: int
    occurred_at: datetime | None
    state: Json
    owes: list[Json]
    amid: bool = False
    from_seq: int
    working_set: SeenByModel
    messages: list[Json]


class Fold:
    """A conversation on its way through its log: evolved event by event, once."""

    def __init__(self, conversation: Conversation) -> None:
        """Begin with a conversation that has no open row: before its first event, or before a `turn_started`."""
        self.conversation = conversation
        self._rows = Rows(DISPLAY_MESSAGES, conversation.id)

    def take(self, event: Event) -> list[Json]:
        """Evolve by the next event; return the display rows that it made or changed."""
        self.conversation.fold([event.decoded])
        DISPLAY_MESSAGES.fold(self._rows, [event])
        return [item_of(row) for _, row in sorted(self._rows.take_changes().items()) if row is not None]

    @property
    def state(self) -> Json:
        """The aggregate's state as JSON's types."""
        return dump(self.conversation)

    def owes(self, now: datetime | None) -> list[Json]:
        """Say what is owed at a time; None: before any event, when nothing is."""
        return owed_json(owes(self.conversation, now)) if now else []


def owed_json(owed: Iterable[Owed]) -> list[Json]:
    """Return what is owed as JSON's types, each with its `kind`."""
    return [
        {"kind": _KINDS[type(item)], **{name: _plain(getattr(item, name)) for name in item.__slots__}} for item in owed
    ]


def of_one_append(event: Event, following: Event | None) -> bool:
    """Say whether two events in a row were appended together: what is decided at once has one time.

    The log does not say so itself, but no two appends to a conversation happen in the same microsecond.
    """
    return following is not None and event.occurred_at == following.occurred_at


async def beginning(history: History, window: Sequence[Event]) -> Conversation:
    """Return the conversation as it stood before a `History.window`, as far as that matters to what follows.

    A turn that starts answers all that waits, and names the event that put the settings in force.
    """
    if not window:
        return Conversation.at(history.conversation_id)
    started = window[0].decoded
    conversation = Conversation.at(history.conversation_id, started.seq - 1)
    if isinstance(started, TurnStarted):
        first = (await history.event(1)).decoded
        in_force = (await history.event(started.settings_seq)).decoded
        assert isinstance(first, ConversationStarted)
        conversation.tenant, conversation.owner = first.tenant, first.owner
        if isinstance(in_force, (ConversationStarted, ConversationChanged)):
            conversation.settings, conversation.metadata = in_force.settings, in_force.metadata
            conversation.settings_seq = in_force.seq
    return conversation


async def moment(history: History, seq: int | None, *, default_model: str, at_least: int = WINDOW) -> Moment:
    """Return what was right after an event (None: the newest), looking at so many events before it.

    `default_model` is whose working set it is where the settings name none. Raises `ConversationNotFound`, and
    `InvalidInput` for a seq that the log has not reached.
    """
    last_seq = await history.last_seq()
    events = await history.window(last_seq if seq is None else _reached(seq, last_seq, "at"), at_least)
    conversation = await beginning(history, events)
    summaries = await history.summaries(events[-1]) if events else []
    then = await asyncio.to_thread(_moment, conversation, events, summaries, last_seq, default_model)
    then.amid = bool(events) and of_one_append(events[-1], next(iter(await history.page(then.seq, 1)), None))
    if (sent := await history.sent_as_of(then.seq)) is not None:
        then.working_set = as_sent(sent, then.working_set.summary_to_seq)
    return then


async def state_at(history: History, seq: int, *, field: str = "at") -> Json:
    """Return the aggregate's state right after an event; raises as `moment` does, naming the field."""
    events = await history.window(_reached(seq, await history.last_seq(), field))
    conversation = await beginning(history, events)
    return await asyncio.to_thread(lambda: dump(conversation.fold(event.decoded for event in events)))


def _reached(seq: int, last_seq: int, field: str) -> int:
    if seq > last_seq:
        raise InvalidInput(field, f"is beyond the newest event, {last_seq}")
    return seq


def _moment(
    conversation: Conversation,
    events: Sequence[Event],
    summaries: Sequence[ConversationEvent],
    last_seq: int,
    default_model: str,
) -> Moment:
    fold = Fold(conversation)
    rows = {row["id"]: row for event in events for row in fold.take(event)}
    return moment_of(fold, events, rows.values(), summaries, last_seq=last_seq, default_model=default_model)


def moment_of(
    fold: Fold,
    events: Sequence[Event],
    rows: Iterable[Json],
    summaries: Sequence[ConversationEvent],
    *,
    last_seq: int,
    default_model: str,
) -> Moment:
    """Return what is right after these events, which were folded and have made these rows."""
    now = events[-1].occurred_at if events else None
    return Moment(
        conversation_id=fold.conversation.id,
        seq=fold.conversation.version,
        last_seq=last_seq,
        occurred_at=now,
        state=fold.state,
        owes=fold.owes(now),
        from_seq=events[0].seq if events else 1,
        working_set=seen_by_model(fold.conversation, events, summaries, default_model=default_model),
        messages=sorted(rows, key=lambda row: (row["seq"], row["sequence"])),
    )


def _plain(value: Any) -> Any:
    match value:
        case tuple():
            return list(value)
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case _:
            return value
