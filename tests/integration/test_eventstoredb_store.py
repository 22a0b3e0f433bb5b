"""What the event store on EventStoreDB does beyond the contract: what is on the server, and how it is read again."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from contextlib import aclosing
from itertools import islice
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from domain.event_store import MAX_EVENT_BYTES, STREAM_DELETED, NewEvent, StoreError, StreamMoved
from domain.wire import decode
from infra.database import Database
from infra.eventstoredb import line as line_module
from infra.eventstoredb import reader as reader_module
from infra.eventstoredb import store as store_module
from infra.eventstoredb import subscription as subscription_module
from infra.eventstoredb.clients import Client, StreamState, WrongCurrentVersionError, new_client
from infra.eventstoredb.clients import NewEvent as NewRecord
from infra.leases import Leases
from infra.log_identity import check_log
from projections.catalog import PROJECTIONS
from projections.positions import Positions
from projections.projector import Projector
from projections.schema import ensure_schema
from tests.contract.samples import caught_up, event, events, seqs, some_stream, take
from tests.support.eventstoredb import Double, Fault, reads, subscriptions, writes
from tests.support.eventstoredb.fixtures import LONG, patient, server, store
from tests.support.eventstoredb.refusals import Refused
from tests.support.eventstoredb.stubs import streams_pb2
from tests.support.random_log import random_log
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from domain.event_store import Appended, StoredEvent
    from infra.eventstoredb.store import EventStoreDBEventStore
    from tests.support.eventstoredb.faults import Call, Kind
    from tests.support.eventstoredb.log import Log

__all__ = ["server", "store"]


def texts(stored: list[StoredEvent]) -> list[str]:
    return [json.loads(one.data)["text"] for one in stored]


async def test_the_ids_are_also_where_the_server_looks_for_them_and_the_events_come_back_as_they_were(
    server: Double, store: EventStoreDBEventStore
) -> None:
    log = random_log(random.Random(3))
    for one in log:
        await store.append(one.stream, [NewEvent(one.event_id, one.type, one.data, one.metadata)], expected=one.seq - 1)
    stored = await store.read(log[0].stream)
    assert list(map(decode, stored)) == list(map(decode, log))
    assert [one.metadata for one in stored] == [one.metadata for one in log]
    for record, one in zip(server.log.stream(log[0].stream), log, strict=True):
        there, ours = json.loads(record.metadata), json.loads(one.metadata)
        assert there["$correlationId"] == ours["correlation_id"]
        assert there["$causationId"] == ours["causation_id"]
        assert {name: value for name, value in there.items() if name[0] != "$"} == ours


async def test_metadata_of_any_shape_comes_back_to_the_letter(store: EventStoreDBEventStore) -> None:
    shapes = [
        "{}", " {}", "[]", "null", '"{"', '{"correlation_id":"a\\"b","x":1}', '{"correlation_id": 5}', '{ "x":1}',
        '{"$correlationId":null,"$causationId":null,"$more":7,"x":1}', '{"":""}',
    ]  # fmt: skip
    stream = some_stream()
    await store.append(stream, [NewEvent(uuid4(), "user_msg", "{}", shape) for shape in shapes], 0)
    assert [one.metadata for one in await store.read(stream)] == shapes
    assert [one.metadata for one in await store.read_all(0, limit=20)] == shapes


async def test_a_prefix_is_on_the_server_only_and_keeps_logs_apart(server: Double) -> None:
    stream = some_stream()
    async with patient(server.uri, "a-") as one, patient(server.uri, "b.") as other:
        await one.append(stream, [event("one")], 0)
        await other.append(stream, [event("other")], 0)
        assert len(server.log.stream(f"a-{stream}")) == len(server.log.stream(f"b.{stream}")) == 1
        for log, text in ((one, "one"), (other, "other")):
            assert texts(await log.read(stream)) == [text]
            assert texts(await log.read_all(0, limit=9, prefixes=["conversation-"])) == [text]
            assert [found.stream for found in await log.read_all(0, limit=9)] == [stream]
            assert texts(await take(log.subscribe(0), 1)) == [text]
        await one.delete(stream)
        assert texts(await other.read(stream)) == ["other"]
        assert await check_log(one, known=None, checkpoint=0) != await check_log(other, known=None, checkpoint=0)


@pytest.mark.parametrize("call", ["append", "read", "subscribe", "delete"])
async def test_a_node_that_is_not_the_leader_any_more_and_one_that_is_not_ready_are_asked_again(
    server: Double, call: Call
) -> None:
    async with patient(server.uri) as store:
        stream = some_stream()
        server.faults.add(Fault(call, "not_leader"), count=2)
        server.faults.add(Fault(call, "not_ready"), count=2)
        await store.append(stream, events(2), 0)
        assert seqs(await store.read(stream)) == [1, 2]
        assert seqs(await take(store.subscribe_stream(stream, 0), 2)) == [1, 2]
        await store.delete(stream)
        assert await store.read(stream) == []
        assert server.faults.left() == ()


async def test_the_cluster_is_asked_for_its_leader_by_one_name_or_by_several_of_which_one_is_dead(
    server: Double,
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{nobody.getsockname()[1]}"
        alive = f"127.0.0.1:{server.port}"
        for address in (f"kurrentdb+discover://{alive}", f"esdb://{dead},{alive}"):
            async with patient(f"{address}?tls=false") as store:
                stream = some_stream()
                await store.append(stream, events(2), 0)
                assert seqs(await store.read(stream)) == [1, 2]


@pytest.mark.parametrize("kind", ["before", "after"])
async def test_l4_an_unknown_outcome_is_settled_by_the_same_ids(
    server: Double, store: EventStoreDBEventStore, kind: Kind
) -> None:
    stream = some_stream()
    for n, status in enumerate(("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "INTERNAL")):
        server.faults.add(Fault("append", kind, status), count=3)
        receipt = await store.append(stream, events(2), 2 * n)
        assert (receipt.seq, receipt.position) == (2 * n + 2, server.log.records[-1].position)
        server.faults.clear()
    assert seqs(await store.read(stream)) == list(range(1, 9))


async def test_l4_a_try_that_is_still_on_its_way_is_overtaken_and_written_once(
    server: Double, store: EventStoreDBEventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "WRITE_TIMEOUT_S", LONG)
    stream, other, appended = some_stream(), some_stream(), events(3)

    async def sent(name: str) -> asyncio.Task[Appended]:
        server.faults.add(Fault("append", "delay", seconds=LONG))
        appending = asyncio.create_task(store.append(name, appended, 0))
        await server.until(lambda: not server.faults.left())
        return appending

    first = await sent(stream)
    await store._appends.renew()
    receipt = await first
    overtaken = await sent(other)
    await store.append(other, events(1), 0)
    await store._appends.renew()
    with pytest.raises(StreamMoved):
        await overtaken
    late = tuple(server.delayed)
    assert len(late) == 2
    server.faults.hurried.set()
    await asyncio.gather(*late, return_exceptions=True)  # they leave no trace
    assert len(await store.read_all(0, limit=99)) == 3 + 1
    assert await store.append(stream, appended, 0) == receipt
    assert seqs(await store.read(stream)) == [1, 2, 3]
    assert seqs(await store.read(other)) == [1]


async def test_what_is_larger_than_the_server_takes_in_one_append_is_refused_and_nothing_is_written(
    store: EventStoreDBEventStore,
) -> None:
    stream, large = some_stream(), [event("x" * (MAX_EVENT_BYTES - 100)) for _ in range(3)]
    with pytest.raises(ValueError, match="does not take an append of 1572"):
        await store.append(stream, large, 0)
    assert await store.read(stream) == []
    with pytest.raises(ValueError, match="too large"):
        await store.append(stream, large * 12, 0)


async def test_l5_a_subscriber_is_handed_whole_appends_in_history_and_live(
    store: EventStoreDBEventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "PAGE_EVENTS", 4)
    stream = some_stream()
    for n in range(5):
        await store.append(stream, events(3), 3 * n)
    for batches in (store.subscribe(0), store.subscribe_stream(stream, 0)):
        async with aclosing(batches):
            writing = asyncio.create_task(append_threes(store, some_stream()))
            seen = 0
            while seen < 15 or not writing.done():
                async with asyncio.timeout(PATIENCE_S):
                    batch = await anext(batches)
                assert len(batch.events) % 3 == 0
                seen += len(batch.events)
                if seen >= 15 and batch.caught_up:
                    break
            await writing


async def append_threes(store: EventStoreDBEventStore, stream: str) -> None:
    for n in range(10):
        await store.append(stream, events(3), 3 * n)


async def test_l6_an_append_in_whose_middle_the_subscription_broke_is_delivered_whole_and_once(
    server: Double, store: EventStoreDBEventStore
) -> None:
    stream = some_stream()
    server.faults.add(Fault("subscribe", "after", responses=4))  # the confirmation, that it has caught up, two events
    async with aclosing(store.subscribe_stream(stream, 0)) as batches:
        await caught_up(batches)
        await store.append(stream, events(3), 0)
        async with asyncio.timeout(PATIENCE_S):
            assert seqs(list((await anext(batches)).events)) == [1, 2, 3]
        await store.append(stream, events(1), 3)
        assert seqs(await take(batches, 1)) == [4]
    assert server.calls["subscribe"] == 2


async def test_a_position_that_somebody_made_up_is_read_on_from(store: EventStoreDBEventStore) -> None:
    stream = some_stream()
    for n in range(5):
        await store.append(stream, events(1), n)
    log = await store.read_all(0, limit=9)
    assert seqs(await store.read_all(log[1].position + 1, limit=9)) == [3, 4, 5]
    assert seqs(await store.read_all(log[2].position - 1, limit=1)) == [3]
    assert await store.read_all(log[4].position + 1, limit=9) == []
    assert seqs(await take(store.subscribe(log[1].position + 1), 3)) == [3, 4, 5]


async def test_p3_a_stream_whose_deletion_broke_off_is_hidden_at_once_and_deleted_by_the_next_try(
    server: Double,
) -> None:
    stream, other = some_stream(), some_stream()
    async with patient(server.uri) as store, patient(server.uri) as neighbour:
        await neighbour.append(stream, events(2), 0)
        await neighbour.append(other, events(1), 0)
        assert len(await neighbour.read_all(0, limit=9)) == 3
        server.faults.add(Fault("delete", "before"), count=1_000)
        deleting = asyncio.create_task(store.delete(stream))
        await server.until(lambda: server.calls["delete"] > 0)
        deleting.cancel()
        await asyncio.wait({deleting})
        assert [one.stream for one in await neighbour.read_all(0, limit=9)] == [other]
        server.faults.clear()
        server.faults.add(Fault("delete", "after"), count=2)
        await neighbour.delete(stream)
        found = await store.read_all(0, limit=9)
        assert [(one.stream, one.type) for one in found] == [(other, "user_msg"), (stream, STREAM_DELETED)]
        assert await take(neighbour.subscribe_stream(stream, 1), 1) == found[1:]
        assert await take(neighbour.subscribe(0), 2) == found


async def test_streams_that_several_processes_delete_at_once_are_all_deleted(server: Double) -> None:
    async with patient(server.uri) as one, patient(server.uri) as other:
        streams = [some_stream() for _ in range(10)]
        for stream in streams:
            await one.append(stream, events(1), 0)
        await asyncio.gather(*(store.delete(stream) for stream in streams for store in (one, other)))
        found = await other.read_all(0, limit=99)
        assert {(each.stream, each.type) for each in found} == {(stream, STREAM_DELETED) for stream in streams}
        assert len(found) == 10


async def test_an_idle_projector_keeps_up_with_the_log_while_only_others_streams_are_busy(
    server: Double, database_url: str
) -> None:
    async with (
        patient(server.uri, "ours-") as ours,
        patient(server.uri, "theirs-") as theirs,
        Database(database_url) as database,
    ):
        async with database.connection() as connection:
            await ensure_schema(connection, PROJECTIONS)
        projector = asyncio.create_task(Projector(ours, database, Leases(database), PROJECTIONS).run())
        positions = Positions(database)
        listening = asyncio.create_task(positions.run())
        try:
            begun = await theirs.append("busy", events(1), 0)
            version = 1
            async with asyncio.timeout(PATIENCE_S):
                while not await positions.wait(["conversations"], begun.position, timeout_s=0.1):
                    version = (await theirs.append("busy", events(50), version)).seq
            head = await ours.head()
        finally:
            projector.cancel()
            listening.cancel()
            await asyncio.gather(projector, listening, return_exceptions=True)
        async with database.connection() as connection:
            cursor = await connection.execute("select position from projections where name = 'conversations'")
            [checkpoint] = await cursor.fetchone() or [0]
        assert begun.position <= checkpoint <= head
        identity = await check_log(ours, known=None, checkpoint=checkpoint)
        assert await check_log(ours, known=identity, checkpoint=checkpoint) == identity


async def test_a_burst_that_the_server_does_not_keep_for_a_live_subscription_is_caught_up_with(
    server: Double, store: EventStoreDBEventStore
) -> None:
    stream = some_stream()
    async with aclosing(store.subscribe_stream(stream, 0)) as batches:
        await caught_up(batches)
        for n in range(3):
            await store.append(stream, events(100), 100 * n)
            assert seqs(await take(batches, 100)) == list(range(100 * n + 1, 100 * n + 101))
    assert server.calls["subscribe"] == 1


async def test_an_append_is_refused_by_the_leaders_word_although_no_read_shows_yet_what_was_first(
    store: EventStoreDBEventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = some_stream()
    await store.append(stream, events(1), 0)

    async def unreplicated(*_: object, **__: object) -> int:
        raise WrongCurrentVersionError("Stream position of last event is 2 not 0")

    monkeypatch.setattr(Client, "append_to_stream", unreplicated)
    with pytest.raises(StreamMoved) as moved:
        await store.append(stream, events(1), 1)
    assert (moved.value.expected, moved.value.actual) == (1, 3)


async def test_what_other_programs_keep_on_the_server_does_not_stop_us(
    server: Double, store: EventStoreDBEventStore
) -> None:
    stream, foreign = some_stream(), new_client(server.uri)
    await foreign.connect()
    async with aclosing(store.subscribe(0)) as everything, aclosing(store.subscribe_stream(stream, 0)) as batches:
        await asyncio.gather(caught_up(everything), caught_up(batches))
        binary = NewRecord(type="protobuf", data=b"\xff\x00", metadata=b"\xfe", content_type="application/octet-stream")
        await foreign.append_to_stream("theirs", current_version=StreamState.NO_STREAM, events=[binary])
        await store.append(stream, events(1), 0)
        assert seqs(await take(batches, 1)) == [1]
        assert [one.stream for one in await take(everything, 2)] == ["theirs", stream]
    assert [one.stream for one in await store.read_all(0, limit=9)] == ["theirs", stream]
    await foreign.close()


async def test_l6_a_checkpoint_at_which_the_next_event_is_going_to_be_loses_nothing(
    server: Double, store: EventStoreDBEventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some servers tell the beginning of an empty page, where the log ends, when they have caught up."""
    length = server.log.records[-1].position + 1_000_000

    def at_the_end(_: object) -> Iterator[object]:
        yield streams_pb2.ReadResp(checkpoint=streams_pb2.ReadResp.Checkpoint(commit_position=length))

    monkeypatch.setattr(subscriptions._AllSubscription, "_told_checkpoint", at_the_end)
    stream = some_stream()
    async with aclosing(store.subscribe_stream(stream, 0)) as batches:
        await caught_up(batches)
        for n in range(3):
            server.drop_subscriptions("ABORTED")
            await store.append(stream, events(1), n)
            assert seqs(await take(batches, 1)) == [n + 1]


async def test_a_page_is_filled_with_what_comes_after_many_events_of_deleted_streams(
    server: Double, store: EventStoreDBEventStore
) -> None:
    deleted, streams = some_stream(), [some_stream() for _ in range(2)]
    await store.append(deleted, events(500), 0)
    for stream in streams:
        await store.append(stream, events(1), 0)
    await store.delete(deleted)
    asked = server.calls["read"]
    assert [one.stream for one in await store.read_all(0, limit=1)] == streams[:1]
    assert server.calls["read"] - asked < 40
    assert [one.stream for one in await store.read_all(0, limit=2)] == streams


async def test_opening_waits_for_a_server_for_a_while_however_patient_the_store_is(
    server: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "OPENING_SECONDS", 0.5)
    await server.stop()
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(StoreError, match="out of reach"):
            await patient(server.uri).__aenter__()


async def test_in_an_outage_that_lasts_one_call_goes_on_asking_and_the_others_fail_soon(
    server: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_module, "OTHERS_SECONDS", 0.2)
    async with patient(server.uri) as store:
        await server.stop()
        store._reads._patience = 1
        with pytest.raises(StoreError, match="out of reach"):
            await store.head()
        store._reads._patience = LONG
        asking = asyncio.create_task(store.head())
        await asyncio.sleep(0)
        others = await asyncio.gather(*(store.head() for _ in range(20)), return_exceptions=True)
        assert {str(error).split(":")[0] for error in others} == {"EventStoreDB is out of reach"}
        assert not asking.done()
        server.log.restarted()
        await server.start()
        async with asyncio.timeout(PATIENCE_S):
            head = await asking
        assert await asyncio.gather(*(store.head() for _ in range(20))) == [head] * 20


async def test_what_lies_beyond_more_than_the_server_looks_through_in_time_is_reached_piece_by_piece(
    server: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "LOOK_EVENTS", 50)
    at_once = reads.read_all

    def slowly(log: Log, options: streams_pb2.ReadReq.Options) -> Iterator[streams_pb2.ReadResp]:
        start = log.place(options.all.position.commit_position) if options.all.HasField("position") else 0
        end = start + 200 if options.WhichOneof("filter_option") == "filter" else len(log.records)
        reached = log.records[min(end, len(log.records)) - 1].position
        for answer in at_once(log, options):
            if answer.event.commit_position > reached:
                break
            yield answer
        else:
            if end >= len(log.records):
                return
        raise Refused("DEADLINE_EXCEEDED", "Deadline Exceeded")

    async with patient(server.uri, "a-") as ours, patient(server.uri, "b-") as theirs:
        first, version = some_stream(), 0
        await ours.append(first, events(3), 0)
        for _ in range(5):
            version = (await theirs.append("busy", events(150), version)).seq
        last = some_stream()
        await ours.append(last, events(3), 0)
        monkeypatch.setattr(reads, "read_all", slowly)
        wanted = [first] * 3 + [last] * 3
        assert [one.stream for one in await ours.read_all(0, limit=9)] == wanted
        assert [one.stream for one in await take(ours.subscribe(0), 6)] == wanted
        assert [one.stream for one in await ours.read_all(0, limit=4)] == wanted[:4]


async def test_l5_an_append_that_the_server_could_not_deliver_whole_in_time_is_handed_on_whole(
    server: Double, store: EventStoreDBEventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once, cuts = reads.read_all, iter((2, 5))

    def cut(log: Log, options: streams_pb2.ReadReq.Options) -> Iterator[streams_pb2.ReadResp]:
        yield from islice(at_once(log, options), count := next(cuts, None))
        if count is not None:
            raise Refused("DEADLINE_EXCEEDED", "Deadline Exceeded")

    stream = some_stream()
    for n in range(3):
        await store.append(stream, events(3), 3 * n)
    start = await store.head()
    async with aclosing(store.subscribe(0)) as batches:
        await store._live.started()
        monkeypatch.setattr(store, "head", lambda: asyncio.sleep(0, start))
        monkeypatch.setattr(reads, "read_all", cut)
        seen: list[StoredEvent] = []
        while len(seen) < 9:
            async with asyncio.timeout(PATIENCE_S):
                batch = await anext(batches)
            assert len(batch.events) % 3 == 0
            seen += batch.events
    assert seqs(seen) == list(range(1, 10))


async def test_l6_a_subscription_that_falls_silent_while_its_connection_works_is_renewed(
    server: Double, store: EventStoreDBEventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does at a node that its cluster has lost."""
    monkeypatch.setattr(subscription_module, "SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(subscription_module, "LATE_SECONDS", 0.2)
    stream = some_stream()
    async with aclosing(store.subscribe_stream(stream, 0)) as batches:
        await caught_up(batches)
        with monkeypatch.context() as mute:
            mute.setattr(subscriptions._AllSubscription, "live", at_its_end)
            await store.append(stream, events(3), 0)
            assert seqs(await take(batches, 3)) == [1, 2, 3]
        assert server.calls["subscribe"] > 1
        await store.append(stream, events(1), 3)
        assert seqs(await take(batches, 1)) == [4]


def at_its_end(muted: subscriptions._AllSubscription) -> Iterator[streams_pb2.ReadResp]:
    muted._next = len(muted._log.records)
    return iter(())
