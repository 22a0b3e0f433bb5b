"""Live events for many subscribers of one process: what one reader has read is handed to all of them, never copied."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from domain.event_store import Batch, SlowSubscriber, StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from domain.event_store import StoredEvent

Key = TypeVar("Key")

INBOX_CHARS = 16 * 1024 * 1024
"""How much may wait for one subscriber before it is cut off, in characters of its events."""

EVENT_OVERHEAD = 512
"""What an event counts beside its data and metadata."""

MERGED_EVENTS = 1_000
"""Waiting batches are handed over as one of at most so many events: a slow reader gets larger batches."""

by_position: Callable[[StoredEvent], int] = attrgetter("position")
by_seq: Callable[[StoredEvent], int] = attrgetter("seq")


class Inbox:
    """The bounded queue of one subscriber. It has one reader; filling it never waits."""

    def __init__(self) -> None:
        self.closed = False
        self._waiting, self._overflowed = 0, False
        self._batches: deque[tuple[Batch, int]] = deque()
        self._stirred = asyncio.Event()

    def put(self, batch: Batch, size: int) -> None:
        """Add a batch of `size` characters; when that is too much, empty the inbox and cut its reader off."""
        if self._batches and not batch.events:  # only the position moves
            newest, newest_size = self._batches[-1]
            self._batches[-1] = Batch(newest.events, batch.position, batch.caught_up), newest_size
        elif self._batches and self._waiting + size > INBOX_CHARS:
            self.clear()
            self._overflowed = True
        elif not self._overflowed:
            self._batches.append((batch, size))
            self._waiting += size
        self._stirred.set()

    def clear(self) -> None:
        """Forget what waits, also that it was too much."""
        self._batches.clear()
        self._waiting, self._overflowed = 0, False

    def close(self) -> None:
        """End the reader as soon as it has taken what waits."""
        self.closed = True
        self._stirred.set()

    async def take(self) -> Batch | None:
        """Return what waits, or wait for it; None once closed. Raises `SlowSubscriber` after an overflow."""
        while not self._batches:
            if self._overflowed:
                raise SlowSubscriber("the reader of a subscription fell too far behind; subscribe again")
            if self.closed:
                return None
            self._stirred.clear()
            await self._stirred.wait()
        taken = [self._pop()]
        events = len(taken[0].events)
        while self._batches and events + len(self._batches[0][0].events) <= MERGED_EVENTS:
            taken.append(self._pop())
            events += len(taken[-1].events)
        if len(taken) == 1:
            return taken[0]
        merged = tuple(chain.from_iterable(batch.events for batch in taken))
        return Batch(merged, taken[-1].position, taken[-1].caught_up)

    def _pop(self) -> Batch:
        batch, size = self._batches.popleft()
        self._waiting -= size
        return batch


class FanOut:
    """The inboxes of a process by what they want: streams with certain prefixes, or one stream."""

    def __init__(self) -> None:
        self._by_prefixes: dict[tuple[str, ...], set[Inbox]] = {}
        self._by_stream: dict[str, set[Inbox]] = {}

    def joined(self, prefixes: Sequence[str]) -> AbstractContextManager[Inbox]:
        """Receive what is delivered from now on to streams with one of the prefixes (none: to all)."""
        return self._member(self._by_prefixes, tuple(prefixes))

    def joined_stream(self, stream: str) -> AbstractContextManager[Inbox]:
        """Receive what is delivered from now on to one stream; its batches count by seq."""
        return self._member(self._by_stream, stream)

    def deliver(self, events: tuple[StoredEvent, ...], position: int, *, caught_up: bool) -> None:
        """Hand on the next events of the log, ascending, which reach up to `position`."""
        for prefixes, inboxes in self._by_prefixes.items():
            wanted = tuple(e for e in events if e.stream.startswith(prefixes)) if prefixes else events
            _put(inboxes, Batch(wanted, position, caught_up))
        streams: dict[str, list[StoredEvent]] = {}
        for event in events:
            if event.stream in self._by_stream:
                streams.setdefault(event.stream, []).append(event)
        for stream, own in streams.items():
            _put(self._by_stream[stream], Batch(tuple(own), own[-1].seq, caught_up))

    def close(self) -> None:
        """End every subscription that there is."""
        for inbox in chain(*self._by_prefixes.values(), *self._by_stream.values()):
            inbox.close()

    @contextmanager
    def _member(self, groups: dict[Key, set[Inbox]], key: Key) -> Iterator[Inbox]:
        inbox = Inbox()
        groups.setdefault(key, set()).add(inbox)
        try:
            yield inbox
        finally:
            groups[key].discard(inbox)
            if not groups[key]:
                del groups[key]


def _put(inboxes: set[Inbox], batch: Batch) -> None:
    size = sum(EVENT_OVERHEAD + len(event.data) + len(event.metadata) for event in batch.events)
    for inbox in inboxes:
        inbox.put(batch, size)


async def follow(
    joined: AbstractContextManager[Inbox],
    read_page: Callable[[int], Awaitable[Batch]],
    after: int,
    cursor: Callable[[StoredEvent], int],
) -> AsyncGenerator[Batch, None]:
    """Yield history by `read_page(after)` until a page has caught up, then what the inbox receives: no gap, no repeat.

    `read_page` must see all that was delivered before it was called. `cursor` is what `after` and batches count by.
    Ends when the inbox is closed.
    """
    position, caught_up = after, False
    with joined as inbox:
        while not caught_up and not inbox.closed:
            inbox.clear()  # what was delivered before this read is part of it
            try:
                page = await read_page(position)
            except StoreError:
                if inbox.closed:
                    return
                raise
            position, caught_up = page.position, page.caught_up
            yield page
        while (batch := await inbox.take()) is not None:
            if batch.position <= position:
                continue
            if batch.events and cursor(batch.events[0]) <= position:
                batch = Batch(tuple(e for e in batch.events if cursor(e) > position), batch.position, batch.caught_up)
            position = batch.position
            yield batch
