"""What every event store's subscriptions do, in tests; a part of `EventStoreContract`."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from domain.event_store import (
    MAX_EVENT_BYTES,
    STREAM_DELETED,
    Batch,
    EventStore,
    SlowSubscriber,
    StoredEvent,
)
from tests.contract.samples import caught_up, event, events, seqs, some_stream, take
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from tests.contract.samples import OpenStore


class SubscriptionContract:
    """History, then live: nothing lost, nothing repeated, nothing waited for in vain."""

    @pytest.fixture
    async def store(self, open_store: OpenStore) -> AsyncIterator[EventStore]:
        async with open_store() as store:
            yield store

    async def test_l6_a_subscriber_that_dies_anywhere_and_resumes_sees_every_event_once(
        self, store: EventStore
    ) -> None:
        dice, writers, appends, size = random.Random(6), 32, 10, 3
        start = await store.head()

        async def write(stream: str) -> None:
            for n in range(appends):
                await store.append(stream, events(size), n * size)

        writing = asyncio.gather(*(write(some_stream()) for _ in range(writers)))
        seen: list[StoredEvent] = []
        position = start
        while len(seen) < writers * appends * size:
            async with aclosing(store.subscribe(position)) as batches:
                seen += await take(batches, 1)
                if dice.random() < 0.5 and len(seen) < writers * appends * size:
                    seen += await take(batches, 1)
                position = seen[-1].position
        await writing
        assert [one.position for one in seen] == sorted({one.position for one in seen})
        assert seen == await store.read_all(start, limit=10_000)

    async def test_a_subscription_delivers_history_says_so_and_stays_live(self, store: EventStore) -> None:
        stream = some_stream()
        await store.append(stream, events(3), 0)
        [first, *_] = await store.read(stream)
        async with aclosing(store.subscribe(first.position)) as batches:
            history = await caught_up(batches)
            assert seqs(list(history.events)) == [2, 3]
            assert history.position == await store.head()
            for version in range(3, 6):
                await store.append(stream, events(1), version)
                assert seqs(await take(batches, 1)) == [version + 1]

    async def test_a_subscription_from_the_end_says_that_it_has_caught_up(self, store: EventStore) -> None:
        head = await store.head()
        async with aclosing(store.subscribe(head)) as batches:
            assert await caught_up(batches) == Batch((), head, caught_up=True)
        async with aclosing(store.subscribe_stream(some_stream(), 0)) as batches:
            assert await caught_up(batches) == Batch((), 0, caught_up=True)

    async def test_a_filtered_subscription_moves_over_what_it_does_not_want(self, store: EventStore) -> None:
        root, start = uuid4().hex, await store.head()
        await store.append(f"{root}-conversation-1", events(1), 0)
        other = await store.append(f"{root}-other", events(2), 0)
        prefixes = [f"{root}-conversation-", f"{root}-summary-"]
        async with aclosing(store.subscribe(start, prefixes=prefixes)) as batches:
            history = await caught_up(batches)
            assert [one.stream for one in history.events] == [f"{root}-conversation-1"]
            assert history.position == other.position
            other = await store.append(f"{root}-other", events(2), 2)
            async with asyncio.timeout(PATIENCE_S):
                assert await anext(batches) == Batch((), other.position, caught_up=True)
            await store.append(f"{root}-summary-1", events(1), 0)
            assert [one.stream for one in await take(batches, 1)] == [f"{root}-summary-1"]

    async def test_an_idle_subscriptions_position_moves_on_while_other_streams_are_busy(
        self, store: EventStore
    ) -> None:
        busy = some_stream()
        async with aclosing(store.subscribe(await store.head(), prefixes=[some_stream()])) as batches:
            position = (await caught_up(batches)).position
            for version in range(0, 300, 50):
                mark = (await store.append(busy, events(50), version)).position
                async with asyncio.timeout(PATIENCE_S):
                    while position < mark:
                        batch = await anext(batches)
                        assert not batch.events
                        assert batch.position >= position
                        position = batch.position
        async with aclosing(store.subscribe(position, prefixes=[busy])) as batches:
            assert await caught_up(batches) == Batch((), position, caught_up=True)

    async def test_a_stream_subscription_delivers_its_stream_by_seq(self, store: EventStore) -> None:
        stream, other = some_stream(), some_stream()
        await store.append(other, events(2), 0)
        await store.append(stream, events(3), 0)
        async with aclosing(store.subscribe_stream(stream, 1)) as batches:
            history = await caught_up(batches)
            assert (seqs(list(history.events)), history.position) == ([2, 3], 3)
            await store.append(other, events(1), 2)
            await store.append(stream, events(2), 3)
            async with asyncio.timeout(PATIENCE_S):
                live = await anext(batches)
            assert (seqs(list(live.events)), live.position) == ([4, 5], 5)

    async def test_a_subscription_from_beyond_the_end_skips_up_to_there(self, store: EventStore) -> None:
        stream = some_stream()
        async with aclosing(store.subscribe_stream(stream, 2)) as batches:
            await caught_up(batches)
            await store.append(stream, events(2), 0)
            await store.append(stream, events(1), 2)
            assert seqs(await take(batches, 1)) == [3]

    async def test_l6_nothing_is_lost_or_repeated_between_history_and_live(self, store: EventStore) -> None:
        stream, start = some_stream(), await store.head()

        async def write() -> None:
            for n in range(300):
                await store.append(stream, events(1), n)

        writing = asyncio.create_task(write())
        readers = []
        for _ in range(30):
            readers += [take(store.subscribe(start), 300), take(store.subscribe_stream(stream, 0), 300)]
            await store.read(stream, limit=1)
        seen = await asyncio.gather(*readers)
        await writing
        assert all(seqs(one) == list(range(1, 301)) for one in seen)

    async def test_500_subscribers_are_handed_the_same_events_not_copies(self, store: EventStore) -> None:
        stream, start = some_stream(), await store.head()
        subscriptions = [store.subscribe(start) for _ in range(250)] + [
            store.subscribe_stream(stream, 0) for _ in range(250)
        ]
        await asyncio.gather(*map(caught_up, subscriptions))
        await store.append(stream, events(2), 0)
        received = await asyncio.gather(*(take(batches, 2) for batches in subscriptions))
        assert len({id(one) for taken in received for one in taken}) == 2
        await asyncio.gather(*(batches.aclose() for batches in subscriptions))

    async def test_w3_a_reader_that_stops_reading_is_cut_off_and_others_are_not(self, store: EventStore) -> None:
        stream, large, start = some_stream(), "x" * (MAX_EVENT_BYTES - 100), await store.head()
        async with aclosing(store.subscribe(start)) as slow, aclosing(store.subscribe_stream(stream, 0)) as fast:
            await asyncio.gather(caught_up(slow), caught_up(fast))
            for n in range(40):
                await store.append(stream, [event(large)], n)
                await take(fast, 1)
            with pytest.raises(SlowSubscriber):
                await take(slow, 40)
        async with aclosing(store.subscribe(start)) as again:
            assert seqs(await take(again, 40)) == list(range(1, 41))

    async def test_a_waiting_subscription_ends_when_it_is_cancelled(self, store: EventStore) -> None:
        started = asyncio.Event()

        async def listen(batches: AsyncGenerator[Batch, None]) -> None:
            async with aclosing(batches):
                async for _ in batches:
                    started.set()

        for batches in (store.subscribe(await store.head()), store.subscribe_stream(some_stream(), 0)):
            started.clear()
            listening = asyncio.create_task(listen(batches))
            await started.wait()
            listening.cancel()
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.wait({listening})
            assert listening.cancelled()

    async def test_a_subscription_ends_wherever_it_is_when_it_is_cancelled(self, store: EventStore) -> None:
        start, stream = await store.head(), some_stream()
        await store.append(stream, events(3), 0)

        async def listen() -> None:
            async with aclosing(store.subscribe(start, prefixes=[stream])) as batches:
                async for _ in batches:
                    pass

        for steps in range(80):
            listening = asyncio.create_task(listen())
            for _ in range(steps):
                await asyncio.sleep(0)
            listening.cancel()
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.wait({listening})
            assert listening.cancelled()

    async def test_closing_the_store_ends_its_subscriptions(self, open_store: OpenStore) -> None:
        async def listen(batches: AsyncGenerator[Batch, None], ready: asyncio.Event) -> str:
            async for _ in batches:
                ready.set()
            return "ended"

        async with open_store() as store:
            ready = [asyncio.Event(), asyncio.Event()]
            subscriptions = [store.subscribe(await store.head()), store.subscribe_stream(some_stream(), 0)]
            listening = [asyncio.create_task(listen(*pair)) for pair in zip(subscriptions, ready, strict=True)]
            await asyncio.gather(*(event.wait() for event in ready))
        async with asyncio.timeout(PATIENCE_S):
            assert await asyncio.gather(*listening) == ["ended", "ended"]

    async def test_a_slow_reader_catches_up_and_misses_nothing(self, store: EventStore) -> None:
        stream, start = some_stream(), await store.head()
        async with aclosing(store.subscribe(start)) as batches:
            await caught_up(batches)
            for version in range(0, 2_000, 100):
                await store.append(stream, events(100), version)
            seen: list[StoredEvent] = []
            while len(seen) < 2_000:
                seen += await take(batches, 1)
        assert seqs(seen) == list(range(1, 2_001))

    async def test_subscribers_learn_of_a_delete(self, store: EventStore) -> None:
        stream, start = some_stream(), await store.head()
        await store.append(stream, events(2), 0)
        async with (
            aclosing(store.subscribe_stream(stream, 0)) as before,
            aclosing(store.subscribe(start, prefixes=[stream])) as everything,
        ):
            await asyncio.gather(caught_up(before), caught_up(everything))
            await store.delete(stream)
            assert [one.type for one in await take(before, 1)] == [STREAM_DELETED]
            assert [one.type for one in await take(everything, 1)] == [STREAM_DELETED]
        for after in (0, 1, 2):
            async with aclosing(store.subscribe_stream(stream, after)) as batches:
                [tombstone] = await take(batches, 1)
                assert (tombstone.stream, tombstone.type) == (stream, STREAM_DELETED)
        async with aclosing(store.subscribe(start, prefixes=[stream])) as batches:
            assert [one.type for one in await take(batches, 1)] == [STREAM_DELETED], "its events are shown no more"
