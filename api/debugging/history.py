"""A conversation's whole log, wherever it is kept: its events by seq, and its summaries."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from domain.errors import ConversationNotFound
from domain.events import TurnStarted
from domain.summary_events import SummaryRecorded, SummaryRevoked
from domain.wire import decode, stream_of, summary_stream_of
from projections.event import Event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from uuid import UUID

    from domain.event_envelope import ConversationEvent
    from domain.event_store import StoredEvent

PAGE = 250
WINDOW = 1_000
WINDOW_BYTES = 2 * 1024 * 1024
"""So much is looked at of a conversation at a time, however long it is: events, and bytes of their JSON."""


class LogReader(Protocol):
    """Streams that can be read; every `EventStore` is one."""

    async def read(
        self, stream: str, *, after: int = 0, before: int | None = None, limit: int | None = None, first: bool = False
    ) -> list[StoredEvent]:
        """Return the events with ``after < seq < before``, ascending; of `limit` the newest, or `first` ones."""
        ...


class SentMessages(NamedTuple):
    """What a model was really sent, in the format of OpenAI's chat completions."""

    model: str
    messages: list[dict[str, Any]]


class Requests(Protocol):
    """The requests of model calls that were kept."""

    async def sent_as_of(self, conversation_id: UUID, seq: int) -> SentMessages | None:
        """Return the request that saw the log up to this seq and no further, None where none is kept."""
        ...


class LoadedLog:
    """Streams in memory: of an exported file, or of a log that was changed to see what would have been."""

    def __init__(self, events: Iterable[StoredEvent]) -> None:
        """`events` ascend by seq in each stream."""
        self._streams: dict[str, list[StoredEvent]] = defaultdict(list)
        for event in events:
            self._streams[event.stream].append(event)

    async def read(
        self, stream: str, *, after: int = 0, before: int | None = None, limit: int | None = None, first: bool = False
    ) -> list[StoredEvent]:
        """Return events as an `EventStore` does."""
        events = self._streams.get(stream, [])
        begin = bisect_left(events, after + 1, key=lambda event: event.seq)
        end = len(events) if before is None else bisect_left(events, before, key=lambda event: event.seq)
        if limit is not None:
            begin, end = (begin, min(end, begin + limit)) if first else (max(begin, end - limit), end)
        return events[begin:end]


class History:
    """The log of one conversation, read a piece at a time, and what is kept of its model calls; no read model."""

    def __init__(
        self, log: LogReader, conversation_id: UUID, requests: Requests | None = None, *, page: int = PAGE
    ) -> None:
        """Read so many events at a time."""
        self.log, self.conversation_id = log, conversation_id
        self._requests, self._page = requests, page
        self.stream = stream_of(conversation_id)

    async def last_seq(self) -> int:
        """Return the seq of the newest event; raises `ConversationNotFound` where there is none."""
        newest = await self.log.read(self.stream, limit=1)
        if not newest:
            raise ConversationNotFound("no such conversation")
        return newest[-1].seq

    async def page(self, after: int, limit: int | None = None) -> list[Event]:
        """Return the first events after a seq, ascending: a page, or `limit`; fewer where they are large."""
        stored = await self.log.read(self.stream, after=after, limit=limit or self._page, first=True)
        sizes = accumulate(len(event.data) for event in stored)
        large = next((i for i, size in enumerate(sizes, 1) if size > WINDOW_BYTES), len(stored))
        return self._events(stored[:large])

    async def pages(self, after: int = 0, upto: int | None = None) -> AsyncIterator[list[Event]]:
        """Go through the events after a seq, up to one, ascending."""
        before = None if upto is None else upto + 1
        while stored := await self.log.read(self.stream, after=after, before=before, limit=self._page, first=True):
            yield self._events(stored)
            after = stored[-1].seq

    async def whole(self) -> list[Event]:
        """Return all events; raises `ConversationNotFound` where there are none."""
        events = [event async for page in self.pages() for event in page]
        if not events:
            raise ConversationNotFound("no such conversation")
        return events

    async def event(self, seq: int) -> Event:
        """Return the event of a seq; raises `ConversationNotFound`."""
        found = self._events(await self.log.read(self.stream, after=seq - 1, before=seq + 1))
        if not found:
            raise ConversationNotFound("no such conversation")
        return found[0]

    async def window(self, upto: int, at_least: int = 1) -> list[Event]:
        """Return the newest events up to a seq, ascending, back to a `turn_started` or to the first event.

        At least so many where there are, unless they have more than `WINDOW_BYTES`.
        """
        stored: list[StoredEvent] = []
        before, size, turn = upto + 1, 0, False
        while before > 1 and not (turn and (len(stored) >= at_least or size > WINDOW_BYTES)):
            page = await self.log.read(self.stream, before=before, limit=self._page)
            if not page:
                break
            stored = page + stored
            before = page[0].seq
            size += sum(len(event.data) for event in page)
            turn = turn or any(event.type == TurnStarted.wire_type for event in page)
        turns = [i for i, event in enumerate(stored) if event.type == TurnStarted.wire_type]
        if stored and stored[0].seq > 1 and not turns:
            raise ConversationNotFound("the conversation was erased meanwhile")
        nearest = max((i for i in turns if i <= len(stored) - at_least), default=None)
        oldest = 0 if not stored or stored[0].seq == 1 else turns[0]
        return self._events(stored[oldest if nearest is None else nearest :])

    async def summaries(self, as_of: Event) -> list[ConversationEvent]:
        """Return the events of the sibling stream that were there when an event came.

        A fork's copies of them are younger than its copies of events, and count from the event that they speak of.
        """
        stored = await self.log.read(summary_stream_of(self.conversation_id))
        return [one for event in stored if _was_there(one := decode(event), event.position, as_of)]

    async def sent_as_of(self, seq: int) -> SentMessages | None:
        """Return what the model was sent that saw the log up to this seq and no further, None where nobody knows."""
        return await self._requests.sent_as_of(self.conversation_id, seq) if self._requests and seq else None

    def _events(self, stored: Iterable[StoredEvent]) -> list[Event]:
        return [Event(event, self.conversation_id) for event in stored]


def _was_there(summary: ConversationEvent, position: int, as_of: Event) -> bool:
    if summary.copied_from is None:
        return position <= as_of.position
    return isinstance(summary, (SummaryRecorded, SummaryRevoked)) and summary.to_seq <= as_of.seq
