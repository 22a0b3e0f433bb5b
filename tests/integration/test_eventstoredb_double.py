"""The double of EventStoreDB behaves as the server was read and found to behave, seen through the unmodified client."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from infra.eventstoredb.clients import (
    Client,
    ClientError,
    DeadlineExceededError,
    MaximumAppendSizeExceededError,
    NewEvent,
    NotFoundError,
    RecordedEvent,
    StreamIsDeletedError,
    StreamState,
    WrongCurrentVersionError,
)
from tests.support.eventstoredb import Double, Fault, Security, writes
from tests.support.eventstoredb.fixtures import LONG, server
from tests.support.eventstoredb.process import DoubleProcess
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

__all__ = ["server"]


def events(count: int, event_type: str = "said") -> list[NewEvent]:
    return [NewEvent(type=event_type, data=json.dumps({"n": n}).encode()) for n in range(count)]


@asynccontextmanager
async def connected(uri: str) -> AsyncIterator[Client]:
    client = Client(uri)
    await client.connect()
    try:
        yield client
    finally:
        await client.close()


async def reconnected(client: Client, stream: str) -> list[int]:
    """Read a stream as soon as the client reaches the server again."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await numbers(client, stream)
            except ClientError:
                await asyncio.sleep(0.1)


@pytest.fixture
async def client(server: Double) -> AsyncIterator[Client]:
    async with connected(server.uri) as client:
        yield client


async def append(client: Client, stream: str, count: int = 1, version: Any = StreamState.ANY) -> int:
    return await client.append_to_stream(stream, current_version=version, events=events(count))


async def numbers(client: Client, stream: str, **options: Any) -> list[int]:
    return [event.stream_position for event in await client.get_stream(stream, **options)]


async def everything(client: Client, **options: Any) -> list[RecordedEvent]:
    return [event async for event in await client.read_all(**options)]


class Follower:
    """A subscription read by a task of its own; the client tells checkpoints and CaughtUp by their types."""

    def __init__(self, subscription: Any) -> None:
        self.events: list[RecordedEvent] = []
        self.marks: list[str] = []
        self.checkpoints: list[int] = []
        self._subscription, self._arrived = subscription, asyncio.Condition()
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for one in self._subscription:
            async with self._arrived:
                if one.is_caught_up:
                    self.marks.append("caught up")
                elif one.is_checkpoint:
                    self.checkpoints.append(one.commit_position)
                    self.marks.append("checkpoint")
                else:
                    self.events.append(one)
                    self.marks.append("event")
                self._arrived.notify_all()

    async def until(self, mark: str, count: int = 1) -> None:
        async with asyncio.timeout(PATIENCE_S), self._arrived:
            await self._arrived.wait_for(lambda: self.marks.count(mark) >= count)

    async def stop(self) -> None:
        await self._subscription.stop()
        await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def following(subscription: Any) -> AsyncIterator[Follower]:
    follower = Follower(await subscription)
    try:
        yield follower
    finally:
        await follower.stop()


async def test_an_append_is_taken_at_the_expected_version_only(client: Client) -> None:
    assert await append(client, "s", 3, StreamState.NO_STREAM) < await append(client, "s", 1, 2)
    for stream, version in (("s", StreamState.NO_STREAM), ("s", 2), ("s", 9), ("t", 0), ("t", StreamState.EXISTS)):
        with pytest.raises(WrongCurrentVersionError):
            await append(client, stream, 1, version)
    await append(client, "s", 1, StreamState.EXISTS)
    assert await numbers(client, "s") == [0, 1, 2, 3, 4]


async def test_an_exact_append_again_is_known_by_its_ids_in_order(client: Client) -> None:
    one, two, three, four = events(4)
    receipt = await client.append_to_stream("s", current_version=StreamState.NO_STREAM, events=[one, two])
    await client.append_to_stream("s", current_version=1, events=[three])
    assert await client.append_to_stream("s", current_version=StreamState.NO_STREAM, events=[one, two]) == receipt
    for other in ([two, one], [one, four], [one, two, four], [four]):
        with pytest.raises(WrongCurrentVersionError):
            await client.append_to_stream("s", current_version=StreamState.NO_STREAM, events=other)
    await client.append_to_stream("s", current_version=2, events=[three])
    assert await numbers(client, "s") == [0, 1, 2, 3], "at the current version ids are not looked at"


async def test_an_append_at_any_version_is_known_only_while_the_server_remembers(
    server: Double, client: Client
) -> None:
    [one] = events(1)
    receipt = await client.append_to_stream("s", current_version=StreamState.ANY, events=[one])
    assert await client.append_to_stream("s", current_version=StreamState.ANY, events=[one]) == receipt
    assert await client.append_to_stream("other", current_version=StreamState.ANY, events=[one]) > receipt
    server.log.restarted()
    assert await client.append_to_stream("s", current_version=StreamState.ANY, events=[one]) > receipt


async def test_positions_grow_with_gaps_and_every_event_has_its_own(client: Client) -> None:
    receipt = await append(client, "s", 3)
    stored = await client.get_stream("s")
    positions = [event.commit_position or 0 for event in stored]
    assert positions == sorted(set(positions))
    assert positions[-1] == receipt == await client.get_commit_position()
    assert all(later - earlier > 80 for earlier, later in pairwise(positions))
    with pytest.raises(ClientError):
        await everything(client, commit_position=positions[0] + 1)
    with pytest.raises(ClientError):
        await client.subscribe_to_all(commit_position=positions[0] + 1)


async def test_a_stream_is_read_from_a_number_in_both_directions(client: Client) -> None:
    await append(client, "s", 5)
    assert await numbers(client, "s", backwards=True, limit=2) == [4, 3]
    assert await numbers(client, "s", stream_position=1, limit=2) == [1, 2]
    assert await numbers(client, "s", stream_position=2, backwards=True) == [2, 1, 0]
    assert await numbers(client, "s", stream_position=99) == []
    assert await client.get_current_version("s") == 4
    assert await client.get_current_version("none") is StreamState.NO_STREAM
    with pytest.raises(NotFoundError):
        await client.get_stream("none")


async def test_everything_is_read_including_the_position_forwards_and_not_backwards(client: Client) -> None:
    await append(client, "s", 3)
    await append(client, "t", 1)
    shown = await everything(client)
    assert [event.stream_name for event in shown] == ["s", "s", "s", "t"]
    assert "$UserCreated" in [event.type for event in await everything(client, filter_exclude=())]
    third = shown[2].commit_position
    assert len(await everything(client, commit_position=third)) == 2
    assert len(await everything(client, commit_position=third, backwards=True)) == 2
    assert [event.stream_name for event in await everything(client, backwards=True, limit=2)] == ["t", "s"]
    assert len(await everything(client, filter_include=["t"], filter_by_stream_name=True)) == 1


async def test_a_subscription_begins_after_its_position_and_stays_live(client: Client) -> None:
    await append(client, "s", 3)
    first, *_ = await client.get_stream("s")
    subscription = client.subscribe_to_all(commit_position=first.commit_position, include_caught_up=True)
    async with following(subscription) as follower:
        await follower.until("caught up")
        assert [event.stream_position for event in follower.events] == [1, 2]
        await append(client, "s")
        await follower.until("event", 3)
        assert follower.marks == ["event", "event", "caught up", "event"]
    assert follower.task.done()


async def test_checkpoints_come_at_the_end_of_catch_up_and_by_what_was_considered(client: Client) -> None:
    await append(client, "other", 30)
    subscription = client.subscribe_to_all(
        filter_include=["s"],
        filter_by_stream_name=True,
        include_checkpoints=True,
        include_caught_up=True,
        window_size=5,
        checkpoint_interval_multiplier=2,
    )
    async with following(subscription) as follower:
        await follower.until("caught up")
        assert follower.marks == [*["checkpoint"] * 4, "caught up"], "every 10 of 32, and at the end"
        assert follower.checkpoints[-1] <= await client.get_commit_position()
        await append(client, "other", 20)
        await follower.until("checkpoint", 6)
        assert follower.events == []
        assert follower.checkpoints == sorted(set(follower.checkpoints))
        assert follower.checkpoints[-1] == await client.get_commit_position()


async def test_a_slow_subscriber_falls_back_to_catch_up_without_a_word(server: Double, client: Client) -> None:
    large = NewEvent(type="said", data=json.dumps("x" * 400_000).encode())
    async with connected(server.uri) as slow:
        reading = await slow.subscribe_to_all(include_caught_up=True, from_end=True)
        assert (await anext(reading)).is_caught_up
        for version in range(100):
            current = version - 1 if version else StreamState.NO_STREAM
            await client.append_to_stream("s", current_version=current, events=[NewEvent(large.type, large.data)])
        taken = [await anext(reading)]
        async with asyncio.timeout(PATIENCE_S):
            while not taken[-1].is_caught_up:
                taken.append(await anext(reading))
        await reading.stop()
    assert [one.stream_position for one in taken[:-1]] == list(range(100))


async def test_subscribing_beyond_the_end_skips_up_to_there(server: Double, client: Client) -> None:
    await append(client, "s")
    beyond = server.log.end + 10_000
    async with following(client.subscribe_to_all(commit_position=beyond, include_caught_up=True)) as follower:
        await follower.until("caught up")
        body = NewEvent(type="said", data=b'"' + b"x" * 20_000 + b'"')
        await client.append_to_stream("s", current_version=0, events=[body])
        await append(client, "s")
        await follower.until("event")
        assert [event.stream_position for event in follower.events] == [2]


async def test_a_streams_subscription_begins_after_its_number_and_may_wait_for_the_stream(client: Client) -> None:
    await append(client, "s", 4)
    async with following(client.subscribe_to_stream("s", stream_position=2)) as follower:
        await follower.until("event")
        assert [event.stream_position for event in follower.events] == [3]
    async with following(client.subscribe_to_stream("later")) as follower:
        await append(client, "later")
        await follower.until("event")


async def test_a_soft_deleted_stream_goes_on_counting(client: Client) -> None:
    await append(client, "s", 5)
    with pytest.raises(WrongCurrentVersionError):
        await client.delete_stream("s", current_version=1)
    with pytest.raises(NotFoundError):
        await client.delete_stream("never", current_version=StreamState.ANY)
    await client.delete_stream("s", current_version=4)
    with pytest.raises(NotFoundError):
        await client.get_stream("s")
    with pytest.raises(StreamIsDeletedError):
        await append(client, "s", 1, StreamState.EXISTS)
    assert len(await everything(client)) == 5, "$all hides nothing of it"
    await append(client, "s", 1, StreamState.NO_STREAM)
    assert await numbers(client, "s") == [5]


async def test_a_tombstone_is_for_ever_and_is_seen_by_those_who_are_there(client: Client) -> None:
    await append(client, "s", 2)
    async with (
        following(client.subscribe_to_stream("s", include_caught_up=True)) as follower,
        following(client.subscribe_to_all(filter_exclude=(), from_end=True, include_caught_up=True)) as all_follower,
    ):
        await follower.until("caught up")
        await all_follower.until("caught up")
        await client.tombstone_stream("s", current_version=StreamState.ANY)
        await follower.until("event", 3)
        await all_follower.until("event")
        await asyncio.wait({follower.task}, timeout=PATIENCE_S)
        assert isinstance(follower.task.exception(), StreamIsDeletedError)
    tombstone = follower.events[-1]
    assert all_follower.events[-1].id == tombstone.id
    assert (tombstone.type, tombstone.data, tombstone.metadata) == ("$streamDeleted", b"", b"")
    assert tombstone.stream_position == 2**63 - 1
    for refused in (
        append(client, "s"),
        client.get_stream("s"),
        client.subscribe_to_stream("s"),
        client.tombstone_stream("s", current_version=StreamState.ANY),
    ):
        with pytest.raises(StreamIsDeletedError):
            await refused
    assert len(await everything(client)) == 2, "$all keeps its events until a scavenge"


async def test_a_streams_metadata_truncate_it(client: Client) -> None:
    await append(client, "s", 5)
    assert await client.get_stream_metadata("s") == ({}, StreamState.NO_STREAM)
    await client.set_stream_metadata("s", metadata={"$maxCount": 2})
    assert (await client.get_stream_metadata("s"))[0] == {"$maxCount": 2}
    assert await numbers(client, "s") == [3, 4]


async def test_an_append_larger_than_the_limit_is_refused(client: Client) -> None:
    with pytest.raises(MaximumAppendSizeExceededError):
        await client.append_to_stream(
            "s", current_version=StreamState.ANY, events=[NewEvent(type="large", data=b"x" * 1024 * 1024)]
        )


async def test_a_lost_acknowledgement_is_settled_by_the_same_ids(server: Double, client: Client) -> None:
    server.faults.add(Fault("append", "after"))
    await append(client, "s", 2, StreamState.NO_STREAM)
    assert await numbers(client, "s") == [0, 1]
    assert server.calls["append"] == 2


async def test_an_append_that_takes_too_long_may_be_written_all_the_same(
    server: Double, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "WRITE_TIMEOUT_S", 0.1)
    server.faults.add(Fault("append", "delay", seconds=LONG))
    with pytest.raises(DeadlineExceededError):
        await append(client, "s", 1, StreamState.NO_STREAM)
    server.faults.hurried.set()
    async with following(client.subscribe_to_stream("s")) as follower:
        await follower.until("event")
    assert await numbers(client, "s") == [0]


async def test_a_node_that_is_not_ready_or_not_the_leader_says_so(server: Double, client: Client) -> None:
    await append(client, "s")
    server.faults.add(Fault("append", "not_ready"))
    with pytest.raises(ClientError):  # said inside of the answer, so that the client does not try again
        await append(client, "s")
    server.faults.add(Fault("append", "not_leader"))
    with pytest.raises(ClientError):
        await append(client, "s")
    server.faults.add(Fault("read", "not_ready"))
    assert await numbers(client, "s") == [0]
    assert not server.faults.left()


async def test_a_subscription_can_be_dropped(server: Double, client: Client) -> None:
    async with following(client.subscribe_to_all(from_end=True, include_caught_up=True)) as follower:
        await follower.until("caught up")
        server.drop_subscriptions()
        await asyncio.wait({follower.task}, timeout=PATIENCE_S)
        assert isinstance(follower.task.exception(), ClientError)
    server.faults.add(Fault("subscribe", "after", responses=3))
    await append(client, "s", 5)
    async with following(client.subscribe_to_stream("s")) as follower:
        await asyncio.wait({follower.task}, timeout=PATIENCE_S)
        assert len(follower.events) == 2, "one of the three is the confirmation"


async def test_a_restart_on_the_same_port_keeps_what_was_acknowledged(server: Double, client: Client) -> None:
    await append(client, "s", 2)
    await server.stop()
    with pytest.raises(ClientError):
        await append(client, "s")
    await server.restart()
    async with connected(server.uri) as again:
        assert await reconnected(again, "s") == [0, 1]
        await append(again, "s", 1, 1)
    async with connected(f"esdb+discover://127.0.0.1:{server.port}?Tls=false") as found:
        assert await found.get_current_version("s") == 2


async def test_who_has_no_password_or_a_wrong_one_is_refused(tmp_path: Path) -> None:
    security = Security({"ada": "geheim"})
    authority = tmp_path / "ca.pem"
    security.write_authority(authority)
    async with Double(security=security) as server:
        trusted = f"tlsCaFile={authority}"
        async with connected(f"{server.uri}?{trusted}") as client:
            await append(client, "s")
            assert await numbers(client, "s") == [0]
        async with connected(f"esdb://ada:falsch@127.0.0.1:{server.port}?{trusted}") as client:
            with pytest.raises(ClientError):
                await append(client, "s")
            with pytest.raises(ClientError):
                await client.get_stream("s")


async def test_a_process_that_was_killed_has_every_acknowledged_append(tmp_path: Path) -> None:
    with DoubleProcess(tmp_path / "log") as process:
        async with connected(process.uri) as client:
            receipt = await append(client, "s", 3)
            await process.control.add(Fault("append", "before", "INTERNAL"), 2)
            with pytest.raises(ClientError):
                await append(client, "s")
            standing = await process.control.standing()
            assert (standing["faults"], standing["calls"]["append"]) == (0, 3)
        process.kill()
        with (tmp_path / "log").open("ab") as log:
            log.write(b'[[4000, "torn')
        process.start()
        async with connected(process.uri) as client:
            assert await reconnected(client, "s") == [0, 1, 2]
            assert await client.get_commit_position() == receipt
            await append(client, "s", 1, 2)
        await process.control.restart()
        async with connected(process.uri) as client:
            assert await reconnected(client, "s") == [0, 1, 2, 3]
