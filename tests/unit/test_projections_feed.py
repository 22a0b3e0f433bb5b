"""What projections read: nothing is missed when a subscription falls silent, ends, or the store is away."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from domain.event_store import NewEvent, StoreError
from infra.memory_event_store import MemoryEventStore
from projections.feed import Feed
from tests.support.poison import conversation

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from domain.event_store import Batch, StoredEvent


class FrailStore(MemoryEventStore):
    """Its subscriptions fall silent or end on demand, and so do its reads."""

    def __init__(self) -> None:
        super().__init__()
        self.subscriptions = 0
        self.silent = self.away = False

    async def subscribe(self, after_position: int, *, prefixes: Sequence[str] = ()) -> AsyncGenerator[Batch, None]:
        self.subscriptions += 1
        mine = self.subscriptions
        async with aclosing(super().subscribe(after_position, prefixes=prefixes)) as batches:
            async for batch in batches:
                if self.silent and mine == 1:
                    await asyncio.Event().wait()
                if self.away:
                    raise StoreError("away")
                yield batch

    async def read_all(self, after_position: int, *, limit: int, prefixes: Sequence[str] = ()) -> list[StoredEvent]:
        if self.away:
            raise StoreError("away")
        return await super().read_all(after_position, limit=limit, prefixes=prefixes)

    async def add(self, log: Sequence[StoredEvent]) -> int:
        new = [NewEvent(event.event_id, event.type, event.data, event.metadata) for event in log]
        return (await self.append(log[0].stream, new, log[0].seq - 1)).position


@asynccontextmanager
async def feeding(store: FrailStore) -> AsyncIterator[Feed]:
    feed = Feed(store, silence_s=0.05)
    task = asyncio.create_task(feed.run())
    try:
        async with asyncio.timeout(60):
            yield feed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def reach(feed: Feed, after: int, position: int) -> list[int]:
    """Follow the feed to a position; return the seqs on the way."""
    seqs = []
    while after < position:
        span = await feed.next(after)
        after = span.position
        seqs += [event.seq for events in span.conversations.values() for event in events]
    return seqs


async def test_a_subscription_that_falls_silent_is_noticed_and_begun_again_without_a_gap() -> None:
    store = FrailStore()
    async with feeding(store) as feed:
        assert await reach(feed, 0, await store.add(conversation(1)[:2])) == [1, 2]
        store.silent = True
        assert await reach(feed, 2, await store.add(conversation(1)[2:])) == [3, 4, 5, 6]
        assert store.subscriptions > 1


async def test_a_quiet_log_is_no_silence() -> None:
    store = FrailStore()
    async with feeding(store) as feed:
        assert await reach(feed, 0, await store.add(conversation(1)[:2])) == [1, 2]
        waiting = asyncio.create_task(feed.next(2))
        done, _ = await asyncio.wait({waiting}, timeout=0.5)
        assert (done, store.subscriptions) == (set(), 1)
        await store.add(conversation(1)[2:3])
        assert (await waiting).position == 3


async def test_a_store_that_was_away_is_followed_again_from_where_it_was() -> None:
    store = FrailStore()
    async with feeding(store) as feed:
        assert await reach(feed, 0, await store.add(conversation(1)[:2])) == [1, 2]
        store.away = True
        position = await store.add(conversation(1)[2:])
        waiting = asyncio.create_task(reach(feed, 2, position))
        done, _ = await asyncio.wait({waiting}, timeout=0.3)
        assert done == set()
        store.away = False
        assert await waiting == [3, 4, 5, 6]
