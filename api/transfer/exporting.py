"""Logs on their way out: of named conversations by their streams, of all by the log in the order of conversations."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from domain.event_store import STREAM_DELETED
from domain.wire import conversation_of, stream_of, summary_stream_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from uuid import UUID

    from api.transfer.writer import ExportWriter
    from domain.event_store import EventStore, StoredEvent
    from projections.rebuild.ordered_log import OrderedLog

    Note = Callable[[int, int], None]

PAGE = 250
SLICE_EVENTS = 10_000


async def export_named(store: EventStore, conversation_ids: Sequence[UUID], writer: ExportWriter, note: Note) -> None:
    """Write these conversations, each as it is at one moment; `note` is told the events done and in all."""
    newest = [await store.read(stream_of(one), limit=1) for one in conversation_ids]
    total = sum(events[-1].seq for events in newest if events)
    for conversation_id in conversation_ids:
        async with aclosing(log_of(store, conversation_id, await store.head())) as log:
            async for event in log:
                writer.write(event)
                note(writer.events, total)


async def export_all(log: OrderedLog, upto: int, writer: ExportWriter, note: Note) -> None:
    """Write all conversations as they were at a position of the log."""
    pieces = await log.slices(SLICE_EVENTS)
    total = sum(piece.events for piece in pieces)
    begun: UUID | None = None
    for piece in pieces:
        async with aclosing(log.read(piece, upto)) as pages:
            async for page in pages:
                for event in page:
                    if event.seq == 1 and event.type != STREAM_DELETED:
                        begun = conversation_of(event.stream) or begun
                    if event.type != STREAM_DELETED and _belongs(event, begun):
                        writer.write(event)
                note(writer.events, total)


async def log_of(store: EventStore, conversation_id: UUID, upto: int) -> AsyncGenerator[StoredEvent, None]:
    """Yield a conversation's events and those of its summaries up to a position, in the order of the log."""
    own = _Pages(store, stream_of(conversation_id), upto)
    beside = _Pages(store, summary_stream_of(conversation_id), upto)
    summary = await beside.next()
    while (event := await own.next()) is not None:
        while summary is not None and summary.position < event.position:
            yield summary
            summary = await beside.next()
        yield event
    while summary is not None and own.any:
        yield summary
        summary = await beside.next()


class _Pages:
    """A stream up to a position, event by event."""

    def __init__(self, store: EventStore, stream: str, upto: int) -> None:
        self._store, self._stream, self._upto = store, stream, upto
        self._page: list[StoredEvent] = []
        self._seq = 0

    @property
    def any(self) -> bool:
        """Whether there was one."""
        return self._seq > 0

    async def next(self) -> StoredEvent | None:
        """Return the next event, None behind the last."""
        if not self._page:
            page = await self._store.read(self._stream, after=self._seq, limit=PAGE, first=True)
            self._page = [event for event in reversed(page) if event.position <= self._upto]
        if not self._page:
            return None
        event = self._page.pop()
        self._seq = event.seq
        return event


def _belongs(event: StoredEvent, begun: UUID | None) -> bool:
    """Whether the conversation of an event has begun: of one that is just being deleted only summaries may be left."""
    return begun is not None and event.stream in (stream_of(begun), summary_stream_of(begun))
