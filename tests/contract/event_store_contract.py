"""What every event store does, in tests: subclass `EventStoreContract` and give it the fixture `open_store`."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from domain.event_store import (
    MAX_EVENT_BYTES,
    STREAM_DELETED,
    Appended,
    EventStore,
    NewEvent,
    StoredEvent,
    StreamDeleted,
    StreamMoved,
)
from infra.log_identity import WrongLog, check_log, log_identity
from tests.contract.samples import event, events, outcome, seqs, some_stream
from tests.contract.subscription_contract import SubscriptionContract

if TYPE_CHECKING:
    from tests.contract.samples import OpenStore


class EventStoreContract(SubscriptionContract):
    """One suite for all adapters; none may be told from another.

    It takes the store as it finds it: streams have names that nobody else has, positions count from its own start.
    """

    async def test_l1_every_stream_counts_from_one_and_positions_grow_across_all(self, store: EventStore) -> None:
        first, second, start = some_stream(), some_stream(), await store.head()
        receipts = [
            await store.append(first, events(2), 0),
            await store.append(second, events(1), 0),
            await store.append(first, events(3), 2),
        ]
        assert [receipt.seq for receipt in receipts] == [2, 1, 5]
        assert seqs(await store.read(first)) == [1, 2, 3, 4, 5]
        assert seqs(await store.read(second)) == [1]
        everything = await store.read_all(start, limit=100)
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
        stream, start = some_stream(), await store.head()
        data = '{ "b": 1.50, "a":[1e400, -0,\t"ü\\u00fc🙂"], "a": null }'
        appended = NewEvent(uuid4(), "assistant_msg", data, '{"z":1,  "a":2}')
        receipt = await store.append(stream, [appended], 0)
        stored = StoredEvent(
            stream, 1, receipt.position, appended.event_id, appended.type, appended.data, appended.metadata
        )
        assert await store.read(stream) == [stored]
        assert await store.read_all(start, limit=1) == [stored]
        assert isinstance(stored.event_id, UUID)

    async def test_read_all_takes_the_next_of_the_wanted_streams(self, store: EventStore) -> None:
        root, start = uuid4().hex, await store.head()
        names = [f"{root}{name}" for name in ("conversation-1", "summary-1", "conversation-2", "erasures", "summary-%")]
        for stream in names:
            await store.append(stream, events(1), 0)

        async def streams(after: int, limit: int, *prefixes: str) -> list[str]:
            wanted = [root + prefix for prefix in prefixes]
            return [one.stream for one in await store.read_all(after, limit=limit, prefixes=wanted)]

        [first] = await store.read(names[0])
        assert await streams(start, 10) == names
        assert await streams(first.position, 2) == names[1:3]
        assert await streams(start, 10, "conversation-", "era") == [names[0], names[2], names[3]]
        assert await streams(start, 10, "summary-%") == [names[4]]
        assert await streams(start, 10, "conversation.", "(", "conversation-1$") == []
        assert await streams(await store.head(), 10) == []

    async def test_a_page_of_everything_has_no_more_than_was_asked_for(self, store: EventStore) -> None:
        start = await store.head()
        for _ in range(3):
            await store.append(some_stream(), events(2), 0)
        position, pages = start, []
        while page := await store.read_all(position, limit=4):
            pages.append(page)
            position = page[-1].position
        assert [len(page) for page in pages] == [4, 2]
        assert [*pages[0], *pages[1]] == await store.read_all(start, limit=7)
        assert await store.read_all(start, limit=0) == []

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
        stream, start = some_stream(), await store.head()

        async def write() -> None:
            for n in range(60):
                await store.append(stream, events(3), 3 * n)

        writing = asyncio.create_task(write())
        lengths = set()
        while not writing.done():
            lengths.add(len(await store.read(stream)) % 3)
            lengths.add(len(await store.read_all(start, limit=1_000)) % 3)
            await asyncio.sleep(0)
        await writing
        assert lengths == {0}

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
        start = await store.head()
        with pytest.raises(ValueError, match="at least one"):
            await store.append(some_stream(), [], 0)
        with pytest.raises(ValueError, match="type"):
            await store.append(some_stream(), [NewEvent(uuid4(), STREAM_DELETED, "{}", "{}")], 0)
        assert await store.head() == start

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
        for n, text in enumerate(texts):
            await store.append(stream, [NewEvent(uuid4(), "tool_result", text, json.dumps({"n": n}))], n)
        await store.append(stream, [NewEvent(uuid4(), "tool_result", "{}", texts[0])], len(texts))
        stored = await store.read(stream)
        assert [one.data for one in stored] == [*texts, "{}"]
        assert stored[-1].metadata == texts[0]

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

    async def test_a_deleted_stream_is_empty_and_takes_no_more(self, store: EventStore) -> None:
        stream, appended, start = some_stream(), events(3), await store.head()
        await store.append(stream, appended, 0)
        await store.delete(stream)
        await store.delete(stream)
        assert await store.read(stream) == []
        for expected in (0, 3, 4):
            with pytest.raises(StreamDeleted):
                await store.append(stream, events(1), expected)
        with pytest.raises(StreamDeleted):
            await store.append(stream, appended, 0)
        [tombstone] = await store.read_all(start, limit=10)
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
