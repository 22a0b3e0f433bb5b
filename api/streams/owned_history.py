"""The history of all of a caller's conversations in the order of the log, without going through the log."""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, Protocol

from domain.wire import stream_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from domain.event_store import EventStore, StoredEvent
    from projections.conversations import LogSpan

PAGE_EVENTS = 32
"""As many events of each conversation that is open at a point of the history are held in memory."""


class OwnedConversations(Protocol):
    """Knows whose conversations there are, as far as a position of the log."""

    async def owned(self, tenant: str, owner: str, after: int) -> tuple[int, Sequence[LogSpan]]:
        """Return how far it knows the log, and the owner's conversations with an event after position `after`."""
        ...


async def history_of(
    event_store: EventStore, conversations: Sequence[LogSpan], after: int, upto: int
) -> AsyncGenerator[StoredEvent, None]:
    """Yield the conversations' events with ``after < position <= upto``, by position.

    Each stream is read page by page, and only once the merge has come to where it begins.
    """
    # The key is where a conversation's next event is, or a position before it while that is not known.
    heap = [
        (max(found.first_position, after + 1), number, _Reader(event_store, found, after))
        for number, found in enumerate(conversations)
    ]
    heapq.heapify(heap)
    while heap:
        position, number, reader = heap[0]
        event = await reader.next_event()
        if event is None or event.position > upto:
            heapq.heappop(heap)
        elif event.position > position:
            heapq.heapreplace(heap, (event.position, number, reader))
        else:
            yield event
            reader.taken()
            heapq.heapreplace(heap, (position + 1, number, reader))


class _Reader:
    """Reads one stream forward, beginning after a position."""

    def __init__(self, event_store: EventStore, conversation: LogSpan, after: int) -> None:
        self._event_store, self._conversation, self._after = event_store, conversation, after
        self._stream = stream_of(conversation.conversation_id)
        self._page: deque[StoredEvent] = deque()
        self._seq: int | None = None

    async def next_event(self) -> StoredEvent | None:
        """Return the next event, None after the last."""
        if self._seq is None:
            self._seq = await self._seq_before()
        if not self._page:
            self._page += await self._event_store.read(self._stream, after=self._seq, limit=PAGE_EVENTS, first=True)
        return self._page[0] if self._page else None

    def taken(self) -> None:
        """Go on to the event after the next."""
        self._seq = self._page.popleft().seq

    async def _seq_before(self) -> int:
        """Find the seq of the last event that is not after the position, by halving."""
        low, high = 0, self._conversation.last_seq
        if self._conversation.first_position > self._after:
            return low
        while low + 1 < high:
            middle = (low + high) // 2
            found = await self._event_store.read(self._stream, after=middle - 1, before=middle + 1)
            if found and found[0].position <= self._after:
                low = middle
            else:
                high = middle
        return low
