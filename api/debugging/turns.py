"""As much of a conversation's log as can have to do with one event: the turns around it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from domain.events import TurnEnded, TurnStarted
from domain.wire import stream_of

if TYPE_CHECKING:
    from api.debugging.history import LogReader
    from domain.event_store import StoredEvent

PAGE = 250
MOST_DIGITS = 9


def event_named(name: str) -> UUID | int:
    """Return the event id, or the seq, that a text is; raises `ValueError` for any other."""
    if name.isascii() and name.isdecimal() and len(name) <= MOST_DIGITS:
        return int(name)
    return UUID(name)


async def turns_around(log: LogReader, conversation_id: UUID, wanted: UUID | int) -> list[StoredEvent]:
    """Read the turn of an event (by its id or seq), the one before and the one after; empty if there is no such event.

    What a turn answers was said after the turn before it began, and what is said during a turn is answered in it or in
    the next one. An event id is looked for from the log's beginning. Raises `StoreError`.
    """
    stream = stream_of(conversation_id)
    seq = wanted if isinstance(wanted, int) else await _seq_of(log, stream, wanted)
    if seq is None:
        return []
    around = await log.read(stream, after=seq - 1, before=seq + 1)
    starts = sum(event.type == TurnStarted.wire_type for event in around)
    while around and starts < 2 and (page := await log.read(stream, before=around[0].seq, limit=PAGE)):
        starts += sum(event.type == TurnStarted.wire_type for event in page)
        around = page + around
    ends = 0
    while around and ends < 2 and (page := await log.read(stream, after=around[-1].seq, limit=PAGE, first=True)):
        ends += sum(event.type == TurnEnded.wire_type for event in page)
        around += page
    return around


async def _seq_of(log: LogReader, stream: str, event_id: UUID) -> int | None:
    seq = 0
    while page := await log.read(stream, after=seq, limit=PAGE, first=True):
        for event in page:
            if event.event_id == event_id:
                return event.seq
        seq = page[-1].seq
    return None
