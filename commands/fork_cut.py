"""Where a fork leaves its source: between turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import from_json

from domain.errors import CutsTurn, InvalidInput
from domain.events import AssistantMsg, ConversationFinished, TurnEnded, UserMsg
from domain.forking import Cut, left_out_from
from domain.wire import decode, stream_of

if TYPE_CHECKING:
    from uuid import UUID

    from commands.conversations import Conversations
    from domain.event_store import EventStore, StoredEvent

PAGE = 500


async def cut_after(conversations: Conversations, source_id: UUID, seq: int) -> Cut:
    """Cut after an event; the end of the source is not copied. Raises `CutsTurn` where a turn runs."""
    then, newest = await conversations.load_until(source_id, seq)
    if then.turn is not None:
        raise CutsTurn(
            f"turn {then.turn.number}, from event {then.turn.seq} on, runs there: fork where it has ended, "
            f"or at {then.turn.seq - 1}"
        )
    ends = [event.seq for event in newest if event.type == ConversationFinished.wire_type]
    return Cut(ends[0] - 1 if ends else seq)


async def cut_before(conversations: Conversations, source_id: UUID, message_id: str) -> Cut:
    """Cut before a message.

    One that came while a turn ran is left out with those after it, and the turn stays, unless it saw the message: then
    the cut is before that turn. Raises `CutsTurn` if it still runs, `InvalidInput` for an unknown message.
    """
    seq = await _find_message(conversations.store, source_id, message_id)
    then, _ = await conversations.load_until(source_id, seq - 1)
    if (turn := then.turn) is None:
        return Cut(seq - 1)
    rest = await _rest_of_turn(conversations.store, source_id, seq)
    if rest[-1].type != TurnEnded.wire_type:
        raise CutsTurn(f"the message came while turn {turn.number} ran, which has not ended: wait, or cancel it")
    after, _ = await conversations.load_until(source_id, rest[-1].seq)
    decoded = [decode(event) for event in rest]
    without = left_out_from(
        seq,
        [message.seq for message in after.waiting.values()],
        [event.seq for event in decoded if isinstance(event, UserMsg) and not event.respond],
        max((event.context_seq for event in decoded if isinstance(event, AssistantMsg)), default=0),
    )
    return Cut(rest[-1].seq, without) if seq in without else Cut(turn.seq - 1)


async def _find_message(store: EventStore, source_id: UUID, message_id: str) -> int:
    """Return the seq of the newest message of this id, read backwards; raises `InvalidInput` if there is none."""
    stream, before = stream_of(source_id), None
    while page := await store.read(stream, before=before, limit=PAGE):
        for event in reversed(page):
            if event.type == UserMsg.wire_type and from_json(event.data)["message_id"] == message_id:
                return event.seq
        before = page[0].seq
    raise InvalidInput("before_message", "the conversation has no message of this id")


async def _rest_of_turn(store: EventStore, source_id: UUID, seq: int) -> list[StoredEvent]:
    """Return the events from `seq` up to the next end of a turn, or all if none ends."""
    rest: list[StoredEvent] = []
    while page := await store.read(stream_of(source_id), after=seq - 1 + len(rest), limit=PAGE, first=True):
        for event in page:
            rest.append(event)
            if event.type == TurnEnded.wire_type:
                return rest
    return rest
