"""What every event store does, in tests: subclass `EventStoreContract` and give it the fixture `open_store`."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from domain.event_store import (
    MAX_EVENT_BYTES,
    STREAM_DELETED,
    Appended,
    Batch,
    EventStore,
    NewEvent,
    SlowSubscriber,
    StoredEvent,
    StreamDeleted,
    StreamMoved,
)
from infra.log_identity import WrongLog, check_log, log_identity

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    OpenStore = Callable[[], AbstractAsyncContextManager[EventStore]]

PATIENCE = 20.0
"""Seconds within which anything that a test waits for must have happened."""


def event(text: str = "hello") -> NewEvent:
    return NewEvent(uuid4(), "user_msg", json.dumps({"text": text}), '{"actor": "ada"}')


def events(count: int) -> list[NewEvent]:
    return [event(str(n)) for n in range(count)]


def some_stream() -> str:
    return f"conversation-{uuid4()}"


def seqs(stored: list[StoredEvent]) -> list[int]:
    return [one.seq for one in stored]


async def outcome(append: Awaitable[Appended]) -> Appended | Exception:
    try:
        return await append
    except (StreamMoved, StreamDeleted, ValueError) as refusal:
        return refusal


async def take(batches: AsyncGenerator[Batch, None], count: int) -> list[StoredEvent]:
    """Read `count` events, or more if the last batch has more."""
    taken: list[StoredEvent] = []
    async with asyncio.timeout(PATIENCE):
        while len(taken) < count:
            taken += (await anext(batches)).events
    return taken


async def caught_up(batches: AsyncGenerator[Batch, None]) -> Batch:
    async with asyncio.timeout(PATIENCE):
        while not (batch := await anext(batches)).caught_up:
            pass
        return batch


class EventStoreContract:
    """One suite for all adapters; none may be told from another."""

    @pytest.fixture
    async def store(self, open_store: OpenStore) -> AsyncIterator[EventStore]:
        async with open_store() as store:
            yield store

    async def test_l1_every_stream_counts_from_one_and_positions_grow_across_all(self, store: EventStore) -> None:
        first, second = some_stream(), some_stream()
        assert await store.head() == 0
        receipts = [
            await store.append(first, events(2), 0),
            await store.append(second, events(1), 0),
            await store.append(first, events(3), 2),
        ]
        assert [receipt.seq for receipt in receipts] == [2, 1, 5]
        assert seqs(await store.read(first)) == [1, 2, 3, 4, 5]
        assert seqs(await store.read(second)) == [1]
        everything = await store.read_all(0, limit=100)
        assert [one.position for one in everything] == sorted({one.position for one in everything})
        assert [one.stream for one in everything] == [first, first, second, first, first, first]
        assert [receipt.position for receipt in receipts] == [everything[n].position for n in (1, 2, 5)]
        assert await store.head() == receipts[-1].position

    async def test_l2_a_read_takes_an_open_interval_and_limits_to_the_newest_or_oldest(self, store: EventStore) -> None:
        stream = some_stream()
        await store.append(stream, events(5), 0)
        assert seqs(await store.read(stream, before=4, limit=2)) == [2, 3]
        assert seqs(await store.read(stream, limit=2)) == [4, 5]
        assert seqs(await store.read(stream, after=1)) == [2, 3, 4, 5]
        assert seqs(await store.read(stream, after=1, before=5)) == [2, 3, 4]
        assert seqs(await store.read(stream, after=1, limit=2, first=True)) == [2, 3]
        assert seqs(await store.read(stream, after=5)) == []
        assert seqs(await store.read(stream, after=2**70, before=2**71)) == []
        assert await store.read(some_stream()) == []

    async def test_what_was_appended_is_read_back_to_the_letter(self, store: EventStore) -> None:
        stream = some_stream()
        data = '{ "b": 1.50, "a":[1e400, -0,\t"ü\\u00fc🙂"], "a": null }'
        appended = NewEvent(uuid4(), "assistant_msg", data, '{"z":1,  "a":2}')
        receipt = await store.append(stream, [appended], 0)
        stored = StoredEvent(
            stream, 1, receipt.position, appended.event_id, appended.type, appended.data, appended.metadata
        )
        assert await store.read(stream) == [stored]
        assert await store.read_all(0, limit=1) == [stored]
        assert isinstance(stored.event_id, UUID)

    async def test_read_all_takes_the_next_of_the_wanted_streams(self, store: EventStore) -> None:
        for stream in ("conversation-1", "summary-1", "conversation-2", "erasures", "summary-%"):
            await store.append(stream, events(1), 0)
        everything = await store.read_all(0, limit=10)
        assert [one.stream for one in await store.read_all(everything[0].position, limit=2)] == [
            "summary-1",
            "conversation-2",
        ]
        wanted = await store.read_all(0, limit=10, prefixes=["conversation-", "era"])
        assert [one.stream for one in wanted] == ["conversation-1", "conversation-2", "erasures"]
        assert [one.stream for one in await store.read_all(0, limit=10, prefixes=["summary-%"])] == ["summary-%"]
        assert await store.read_all(await store.head(), limit=10) == []

    async def test_l3_one_of_many_concurrent_appends_wins(self, store: EventStore) -> None:
        stream = some_stream()
        await store.append(stream, events(1), 0)
        outcomes = await asyncio.gather(*(outcome(store.append(stream, events(2), 1)) for _ in range(40)))
        moved = [lost for lost in outcomes if isinstance(lost, StreamMoved)]
        assert len(moved) == 39
        assert {(lost.stream, lost.expected, lost.actual) for lost in moved} == {(stream, 1, 3)}
        assert seqs(await store.read(stream)) == [1, 2, 3]

    async def test_an_append_beyond_the_end_is_refused(self, store: EventStore) -> None:
        stream = some_stream()
        with pytest.raises(StreamMoved) as moved:
            await store.append(stream, events(1), 3)
        assert (moved.value.expected, moved.value.actual) == (3, 0)
        assert await store.read(stream) == []

    async def test_l4_a_repeated_append_returns_its_receipt_and_writes_nothing(self, open_store: OpenStore) -> None:
        stream, appended = some_stream(), events(3)
        async with open_store() as store:
            await store.append(stream, events(1), 0)
            receipt = await store.append(stream, appended, 1)
            assert await store.append(stream, appended, 1) == receipt
            await store.append(stream, events(2), 4)
            assert await store.append(stream, appended, 1) == receipt
        async with open_store() as store:
            assert await store.append(stream, appended, 1) == receipt
            assert seqs(await store.read(stream)) == [1, 2, 3, 4, 5, 6]

    async def test_l4_repeats_in_flight_together_are_written_once(self, store: EventStore) -> None:
        stream, appended = some_stream(), events(2)
        receipts = await asyncio.gather(*(store.append(stream, appended, 0) for _ in range(20)))
        assert len(set(receipts)) == 1
        assert seqs(await store.read(stream)) == [1, 2]

    async def test_l4_only_the_very_same_append_is_a_repeat(self, store: EventStore) -> None:
        stream, (one, two, three) = some_stream(), events(3)
        await store.append(stream, [one, two], 0)
        for other in ([one, three], [two, one], [one, two, three], [two], [three]):
            with pytest.raises(StreamMoved):
                await store.append(stream, other, 0)
        assert await store.append(stream, [one], 0) == Appended(1, (await store.read(stream))[0].position)
        assert seqs(await store.read(stream)) == [1, 2]

    async def test_l5_an_append_is_seen_whole_or_not_at_all(self, store: EventStore) -> None:
        stream = some_stream()

        async def write() -> None:
            for n in range(60):
                await store.append(stream, events(3), 3 * n)

        writing = asyncio.create_task(write())
        lengths = set()
        while not writing.done():
            lengths.add(len(await store.read(stream)) % 3)
            lengths.add(len(await store.read_all(0, limit=1_000)) % 3)
            await asyncio.sleep(0)
        await writing
        assert lengths == {0}

    async def test_l6_a_subscriber_that_dies_anywhere_and_resumes_sees_every_event_once(
        self, store: EventStore
    ) -> None:
        dice, writers, appends, size = random.Random(6), 32, 10, 3

        async def write(stream: str) -> None:
            for n in range(appends):
                await store.append(stream, events(size), n * size)

        writing = asyncio.gather(*(write(some_stream()) for _ in range(writers)))
        seen: list[StoredEvent] = []
        position = 0
        while len(seen) < writers * appends * size:
            async with aclosing(store.subscribe(position)) as batches:
                seen += await take(batches, 1)
                if dice.random() < 0.5 and len(seen) < writers * appends * size:
                    seen += await take(batches, 1)
                position = seen[-1].position
        await writing
        assert [one.position for one in seen] == sorted({one.position for one in seen})
        assert seen == await store.read_all(0, limit=10_000)

    async def test_l7_a_conflicting_append_fails_alone(self, store: EventStore) -> None:
        streams = [some_stream() for _ in range(50)]
        outcomes = await asyncio.gather(
            *(outcome(store.append(stream, events(2), 9 if n % 5 == 0 else 0)) for n, stream in enumerate(streams))
        )
        for n, (stream, result) in enumerate(zip(streams, outcomes, strict=True)):
            assert isinstance(result, StreamMoved if n % 5 == 0 else Appended)
            assert len(await store.read(stream)) == (0 if n % 5 == 0 else 2)

    @pytest.mark.parametrize(
        "data",
        ["{", '{"x": NaN}', '{"x": "\0"}', '{"x": "\ud800"}', "", '{"x":"' + "é" * (MAX_EVENT_BYTES // 2) + '"}'],
    )
    async def test_l7_what_cannot_be_stored_fails_alone(self, store: EventStore, data: str) -> None:
        poison = NewEvent(uuid4(), "user_msg", data, "{}")
        streams = [some_stream() for _ in range(9)]
        outcomes = await asyncio.gather(
            *(outcome(store.append(s, [event(), poison] if n == 4 else events(2), 0)) for n, s in enumerate(streams))
        )
        assert isinstance(outcomes.pop(4), ValueError)
        assert all(isinstance(result, Appended) for result in outcomes)
        assert [len(await store.read(stream)) for stream in streams] == [2, 2, 2, 2, 0, 2, 2, 2, 2]

    async def test_an_append_of_nothing_and_a_forged_tombstone_are_refused(self, store: EventStore) -> None:
        with pytest.raises(ValueError, match="at least one"):
            await store.append(some_stream(), [], 0)
        with pytest.raises(ValueError, match="type"):
            await store.append(some_stream(), [NewEvent(uuid4(), STREAM_DELETED, "{}", "{}")], 0)
        assert await store.head() == 0

    async def test_l11_any_json_text_can_be_stored_up_to_the_limit(self, store: EventStore) -> None:
        texts = [
            r'{"nul": "a\u0000b", "lone": "\ud800", "pair": "\ud83d\ude42"}',
            json.dumps({"words": " ".join(str(n) for n in range(70_000))}),
            '{"x":"' + "é" * ((MAX_EVENT_BYTES - 8) // 2) + '"}',
            json.dumps({"deep": json.loads("[" * 500 + "]" * 500)}),
            '"\u2028\ufffe\x7f"',
        ]
        assert len(texts[2].encode()) == MAX_EVENT_BYTES
        stream = some_stream()
        await store.append(stream, [NewEvent(uuid4(), "tool_result", text, text) for text in texts], 0)
        stored = await store.read(stream)
        assert [(one.data, one.metadata) for one in stored] == [(text, text) for text in texts]

    async def test_l13_two_writers_that_retry_never_lose_or_repeat(self, store: EventStore) -> None:
        stream = some_stream()

        async def write(name: str) -> None:
            version = 0
            for n in range(40):
                decision = event(f"{name} {n}")
                while True:
                    try:
                        version = (await store.append(stream, [decision], version)).seq
                        break
                    except StreamMoved as moved:
                        version = moved.actual

        await asyncio.gather(write("worker"), write("person"))
        texts = [json.loads(one.data)["text"] for one in await store.read(stream)]
        assert [text for text in texts if text.startswith("worker")] == [f"worker {n}" for n in range(40)]
        assert [text for text in texts if text.startswith("person")] == [f"person {n}" for n in range(40)]

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

    async def test_a_subscription_to_an_empty_store_says_that_it_has_caught_up(self, store: EventStore) -> None:
        async with aclosing(store.subscribe(0)) as batches:
            assert await caught_up(batches) == Batch((), 0, caught_up=True)
        async with aclosing(store.subscribe_stream(some_stream(), 0)) as batches:
            assert await caught_up(batches) == Batch((), 0, caught_up=True)

    async def test_a_filtered_subscription_moves_over_what_it_does_not_want(self, store: EventStore) -> None:
        await store.append("conversation-1", events(1), 0)
        other = await store.append("other-1", events(2), 0)
        async with aclosing(store.subscribe(0, prefixes=["conversation-", "summary-"])) as batches:
            history = await caught_up(batches)
            assert [one.stream for one in history.events] == ["conversation-1"]
            assert history.position == other.position
            other = await store.append("other-1", events(2), 2)
            async with asyncio.timeout(PATIENCE):
                assert await anext(batches) == Batch((), other.position, caught_up=True)
            await store.append("summary-1", events(1), 0)
            assert [one.stream for one in await take(batches, 1)] == ["summary-1"]

    async def test_a_stream_subscription_delivers_its_stream_by_seq(self, store: EventStore) -> None:
        stream, other = some_stream(), some_stream()
        await store.append(other, events(2), 0)
        await store.append(stream, events(3), 0)
        async with aclosing(store.subscribe_stream(stream, 1)) as batches:
            history = await caught_up(batches)
            assert (seqs(list(history.events)), history.position) == ([2, 3], 3)
            await store.append(other, events(1), 2)
            await store.append(stream, events(2), 3)
            async with asyncio.timeout(PATIENCE):
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
        stream = some_stream()

        async def write() -> None:
            for n in range(300):
                await store.append(stream, events(1), n)

        writing = asyncio.create_task(write())
        readers = []
        for _ in range(30):
            readers += [take(store.subscribe(0), 300), take(store.subscribe_stream(stream, 0), 300)]
            await store.read(stream, limit=1)
        seen = await asyncio.gather(*readers)
        await writing
        assert all(seqs(one) == list(range(1, 301)) for one in seen)

    async def test_500_subscribers_are_handed_the_same_events_not_copies(self, store: EventStore) -> None:
        stream = some_stream()
        subscriptions = [store.subscribe(0) for _ in range(250)] + [
            store.subscribe_stream(stream, 0) for _ in range(250)
        ]
        await asyncio.gather(*map(caught_up, subscriptions))
        await store.append(stream, events(2), 0)
        received = await asyncio.gather(*(take(batches, 2) for batches in subscriptions))
        assert len({id(one) for taken in received for one in taken}) == 2
        await asyncio.gather(*(batches.aclose() for batches in subscriptions))

    async def test_w3_a_reader_that_stops_reading_is_cut_off_and_others_are_not(self, store: EventStore) -> None:
        stream, large = some_stream(), "x" * (MAX_EVENT_BYTES - 100)
        async with aclosing(store.subscribe(0)) as slow, aclosing(store.subscribe_stream(stream, 0)) as fast:
            await asyncio.gather(caught_up(slow), caught_up(fast))
            for n in range(60):
                await store.append(stream, [event(large)], n)
                await take(fast, 1)
            with pytest.raises(SlowSubscriber):
                await take(slow, 60)
        async with aclosing(store.subscribe(0)) as again:
            assert seqs(await take(again, 60)) == list(range(1, 61))

    async def test_a_waiting_subscription_ends_when_it_is_cancelled(self, store: EventStore) -> None:
        started = asyncio.Event()

        async def listen(batches: AsyncGenerator[Batch, None]) -> None:
            async with aclosing(batches):
                async for _ in batches:
                    started.set()

        for batches in (store.subscribe(0), store.subscribe_stream(some_stream(), 0)):
            started.clear()
            listening = asyncio.create_task(listen(batches))
            await started.wait()
            listening.cancel()
            async with asyncio.timeout(1):
                await asyncio.wait({listening})
            assert listening.cancelled()

    async def test_closing_the_store_ends_its_subscriptions(self, open_store: OpenStore) -> None:
        async def listen(batches: AsyncGenerator[Batch, None], ready: asyncio.Event) -> str:
            async for _ in batches:
                ready.set()
            return "ended"

        async with open_store() as store:
            ready = [asyncio.Event(), asyncio.Event()]
            subscriptions = [store.subscribe(0), store.subscribe_stream(some_stream(), 0)]
            listening = [asyncio.create_task(listen(*pair)) for pair in zip(subscriptions, ready, strict=True)]
            await asyncio.gather(*(event.wait() for event in ready))
        async with asyncio.timeout(PATIENCE):
            assert await asyncio.gather(*listening) == ["ended", "ended"]

    async def test_a_deleted_stream_is_empty_and_takes_no_more(self, store: EventStore) -> None:
        stream, appended = some_stream(), events(3)
        await store.append(stream, appended, 0)
        await store.delete(stream)
        await store.delete(stream)
        assert await store.read(stream) == []
        for expected in (0, 3, 4):
            with pytest.raises(StreamDeleted):
                await store.append(stream, events(1), expected)
        with pytest.raises(StreamDeleted):
            await store.append(stream, appended, 0)
        [tombstone] = await store.read_all(0, limit=10)
        assert (tombstone.stream, tombstone.type, tombstone.data, tombstone.metadata) == (
            stream,
            STREAM_DELETED,
            "{}",
            "{}",
        )
        assert tombstone.seq > 3

    async def test_no_position_is_given_twice_after_a_delete(self, store: EventStore) -> None:
        newest = some_stream()
        receipt = await store.append(newest, events(3), 0)
        await store.delete(newest)
        tombstone = await store.head()
        assert tombstone > receipt.position
        assert (await store.append(some_stream(), events(1), 0)).position > tombstone

    async def test_a_stream_that_never_was_can_be_deleted_too(self, store: EventStore) -> None:
        stream = some_stream()
        await store.delete(stream)
        with pytest.raises(StreamDeleted):
            await store.append(stream, events(1), 0)

    async def test_a_delete_leaves_its_neighbours_in_the_group_alone(self, store: EventStore) -> None:
        deleted, other = some_stream(), some_stream()
        await store.delete(deleted)
        lost, kept = await asyncio.gather(
            outcome(store.append(deleted, events(1), 0)), outcome(store.append(other, events(1), 0))
        )
        assert isinstance(lost, StreamDeleted)
        assert isinstance(kept, Appended)

    async def test_subscribers_learn_of_a_delete(self, store: EventStore) -> None:
        stream = some_stream()
        await store.append(stream, events(2), 0)
        async with aclosing(store.subscribe_stream(stream, 0)) as before, aclosing(store.subscribe(0)) as everything:
            await asyncio.gather(caught_up(before), caught_up(everything))
            await store.delete(stream)
            assert [one.type for one in await take(before, 1)] == [STREAM_DELETED]
            assert [one.type for one in await take(everything, 1)] == [STREAM_DELETED]
        async with aclosing(store.subscribe_stream(stream, 0)) as after:
            assert [one.type for one in await take(after, 1)] == [STREAM_DELETED]

    async def test_l14_a_log_has_one_identity_however_many_ask_at_once(self, open_store: OpenStore) -> None:
        async with open_store() as store:
            identities = set(await asyncio.gather(*(log_identity(store) for _ in range(10))))
            assert len(identities) == 1
            assert len(await store.read("rejoinder-log")) == 1
        async with open_store() as store:
            assert {await log_identity(store)} == identities

    async def test_l14_another_log_or_a_shorter_one_is_refused(self, store: EventStore) -> None:
        identity = await check_log(store, known=None, checkpoint=0)
        receipt = await store.append(some_stream(), events(2), 0)
        assert await check_log(store, known=identity, checkpoint=receipt.position) == identity
        with pytest.raises(WrongLog, match="another log"):
            await check_log(store, known=uuid4(), checkpoint=0)
        with pytest.raises(WrongLog, match="shorter"):
            await check_log(store, known=identity, checkpoint=receipt.position + 1)
