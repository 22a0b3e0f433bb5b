"""What projections read: one live subscription for all of a process, and pages of history for those that are behind."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from contextlib import aclosing
from itertools import takewhile
from typing import TYPE_CHECKING, NoReturn

from domain.event_store import SlowSubscriber, StoreError
from domain.wire import PREFIXES
from projections.span import Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from domain.event_store import Batch, EventStore, StoredEvent

logger = logging.getLogger(__name__)

SPAN_EVENTS = 500
"""A span has at most so many events."""
GATHER_S = 0.01
"""Who has waited for an event waits so much longer: others come with it, and the turn that it starts goes first."""
RECENT_EVENTS, RECENT_CHARS = 2_000, 8 * 1024 * 1024
"""How much of the newest log is kept for those who are a little behind."""
PAGES = 4
"""So many pages of history are kept for others who read it at the same time."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
SILENCE_S, LATE_S, PATIENCE_S = 2.0, 1.0, 10.0
"""A subscription that is silent for so long is checked: what it then does not bring within a second, it misses."""


class Silence(Exception):
    """A subscription brings nothing although there is something to bring."""


class Feed:
    """Hands out the log in spans, to each reader from where it stands.

    It keeps events as they are stored: what is parsed would be many objects for the garbage collector to look through.
    """

    def __init__(self, store: EventStore, *, silence_s: float = SILENCE_S) -> None:
        self._store, self._silence_s = store, silence_s
        self._pause, self._silences = FIRST_PAUSE_S, 0
        self._recent: deque[StoredEvent] = deque()
        self._recent_chars = 0
        self._recent_after = self._position = -1  # `_recent` is all of the log between these; -1: not begun
        self._moved = asyncio.Event()
        self._pages: OrderedDict[int, tuple[int, Sequence[StoredEvent]]] = OrderedDict()
        self._paging = asyncio.Lock()

    async def run(self) -> NoReturn:
        """Follow the log for ever, through outages of the store and subscriptions that fall silent."""
        while True:
            following = asyncio.create_task(self._follow(), name="projections' subscription")
            try:
                await self._watch(following)
            except Exception as error:
                unexpected = not isinstance(error, (StoreError, SlowSubscriber, Silence, TimeoutError))
                logger.warning("subscribing anew: %s", error, exc_info=unexpected, extra={"action": "feed_lost"})
            finally:
                following.cancel()
                await asyncio.wait({following})
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * 2, LONGEST_PAUSE_S)

    async def _follow(self) -> None:
        if self._position < 0:
            self._recent_after = self._position = await self._store.head()
            self._stir()
        async with aclosing(self._store.subscribe(self._position, prefixes=PREFIXES)) as batches:
            async for batch in batches:
                self._take(batch)
                self._pause, self._silences = FIRST_PAUSE_S, 0

    async def _watch(self, following: asyncio.Task[None]) -> None:
        """Wait for the end of a subscription; raises what ended it, or `Silence` if it misses what is there."""
        seen = None
        while not following.done():
            await asyncio.wait({following}, timeout=self._silence_s * 2**self._silences)
            if seen == self._position and await self._is_behind():
                await asyncio.wait({following}, timeout=LATE_S)
                if seen == self._position:
                    self._silences = min(self._silences + 1, 4)  # it may only be slow
                    raise Silence(f"the subscription is silent about what follows position {seen}")
            seen = self._position
        following.result()

    async def _is_behind(self) -> bool:
        async with asyncio.timeout(PATIENCE_S):
            if self._position < 0:
                return True
            return bool(await self._store.read_all(self._position, limit=1, prefixes=PREFIXES))

    async def next(self, after: int) -> Span:
        """Wait for what follows a position, and return it: at most `SPAN_EVENTS` events, often none but a position.

        Raises `StoreError` if history is wanted that cannot be read.
        """
        if self._position <= after:
            while self._position <= after:
                moved = self._moved
                await moved.wait()
            await asyncio.sleep(GATHER_S)
        if after < self._recent_after:
            return await self._page(after)
        news = list(takewhile(lambda event: event.position > after, reversed(self._recent)))
        events = news[: -SPAN_EVENTS - 1 : -1]
        position = events[-1].position if len(news) > SPAN_EVENTS else self._position
        return Span(after, position, events)

    async def _page(self, after: int) -> Span:
        async with self._paging:
            if after not in self._pages:
                seen = self._position  # what is read now contains all up to here
                stored = await self._store.read_all(after, limit=SPAN_EVENTS, prefixes=PREFIXES)
                reached = stored[-1].position if stored else after
                self._pages[after] = reached if len(stored) == SPAN_EVENTS else max(reached, seen), stored
                if len(self._pages) > PAGES:
                    self._pages.popitem(last=False)
            return Span(after, *self._pages[after])

    def _take(self, batch: Batch) -> None:
        self._recent.extend(batch.events)
        self._recent_chars += sum(map(_size, batch.events))
        self._position = max(self._position, batch.position)
        while self._recent_chars > RECENT_CHARS or len(self._recent) > RECENT_EVENTS:
            oldest = self._recent.popleft()
            self._recent_chars -= _size(oldest)
            self._recent_after = oldest.position
        self._stir()

    def _stir(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


def _size(event: StoredEvent) -> int:
    return len(event.data) + len(event.metadata)
