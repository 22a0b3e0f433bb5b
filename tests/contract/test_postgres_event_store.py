"""The contract, kept by the event store on PostgreSQL; and what only a database can do to it."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest

from domain.event_store import Appended, StoredEvent, StoreError, StreamMoved
from infra.postgres_event_store import PostgresEventStore
from tests.contract.event_store_contract import EventStoreContract
from tests.contract.samples import PATIENCE, caught_up, event, events, outcome, seqs, some_stream, take

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.contract.samples import OpenStore

ROOT = Path(__file__).parents[2]
TERMINATE_OTHERS = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()
"""


class TestPostgresEventStore(EventStoreContract):
    @pytest.fixture
    def open_store(self, database_url: str) -> OpenStore:
        return lambda: PostgresEventStore(database_url)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresEventStore]:
    async with PostgresEventStore(database_url) as store:
        yield store


@pytest.fixture
async def admin(database_url: str) -> AsyncIterator[psycopg.AsyncConnection]:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        yield connection


async def test_appends_that_arrive_together_share_their_commits(
    store: PostgresEventStore, admin: psycopg.AsyncConnection
) -> None:
    await asyncio.gather(*(store.append(some_stream(), events(2), 0) for _ in range(200)))
    cursor = await admin.execute("select count(*), count(distinct xmin::text) from log.events")
    assert await cursor.fetchone() in [(400, 1), (400, 2)]


async def test_l6_events_of_several_processes_are_seen_once_and_in_order(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(PostgresEventStore(database_url)) for _ in range(3)]

        async def write(store: PostgresEventStore, stream: str) -> None:
            for n in range(20):
                await store.append(stream, events(2), 2 * n)

        readers = [take(store.subscribe(0), 3 * 8 * 40) for store in stores]
        writers = [write(store, some_stream()) for store in stores for _ in range(8)]
        *seen, _ = await asyncio.gather(*readers, asyncio.gather(*writers))
        log = await stores[0].read_all(0, limit=10_000)
        assert [one.position for one in log] == list(range(1, 3 * 8 * 40 + 1))
        assert seen == [log, log, log]


async def test_l4_lost_connections_lose_and_repeat_nothing(
    store: PostgresEventStore, admin: psycopg.AsyncConnection
) -> None:
    appends = 60

    async def write(stream: str) -> None:
        for n in range(appends):
            assert (await store.append(stream, events(2), 2 * n)).seq == 2 * n + 2

    async with aclosing(store.subscribe(0)) as live:
        await caught_up(live)
        writing = asyncio.gather(*(write(some_stream()) for _ in range(8)))
        seen: list[StoredEvent] = []
        while len(seen) < 8 * 2 * appends:
            if not writing.done():
                await admin.execute(TERMINATE_OTHERS)
            seen += await take(live, 40)
        await writing
    assert seen == await store.read_all(0, limit=10_000)


async def test_a_cancelled_append_leaves_its_neighbours_alone(store: PostgresEventStore) -> None:
    for _ in range(20):
        streams = [some_stream() for _ in range(9)]
        appends = [asyncio.create_task(store.append(stream, events(2), 0)) for stream in streams]
        await asyncio.sleep(0)  # the group is being taken
        appends[4].cancel()
        await asyncio.wait(appends)
        assert appends[4].cancelled()
        assert all(append.result().seq == 2 for append in appends if append is not appends[4])
        assert len(await store.read(streams[4])) in (0, 2)


async def test_a_stream_name_that_no_index_holds_fails_alone(store: PostgresEventStore) -> None:
    long = "".join(uuid4().hex for _ in range(1_000))
    refused, taken = await asyncio.gather(
        outcome(store.append(long, events(1), 0)), outcome(store.append(some_stream(), events(1), 0))
    )
    assert isinstance(refused, ValueError)
    assert isinstance(taken, Appended)


async def test_a_lost_notification_delays_no_longer_than_the_safety_poll(
    store: PostgresEventStore, admin: psycopg.AsyncConnection
) -> None:
    async with aclosing(store.subscribe(0)) as batches:
        await caught_up(batches)
        await admin.execute(
            "insert into log.events (position, event_id, stream, seq, type, data, metadata)"
            " values (1, gen_random_uuid(), 'a', 1, 'user_msg', '{}', '{}')"
        )
        async with asyncio.timeout(5):
            assert seqs(await take(batches, 1)) == [1]


async def test_a_listener_that_lost_its_connection_reads_what_it_missed(
    store: PostgresEventStore, admin: psycopg.AsyncConnection
) -> None:
    stream = some_stream()
    async with aclosing(store.subscribe_stream(stream, 0)) as batches:
        await caught_up(batches)
        for n in range(5):
            await admin.execute(TERMINATE_OTHERS)
            await store.append(stream, events(1), n)
            assert seqs(await take(batches, 1)) == [n + 1]


async def test_l12_a_stopped_process_does_not_stop_the_appends_of_others(
    store: PostgresEventStore, database_url: str, tmp_path: Path
) -> None:
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.crash.log_writer", database_url, str(tmp_path / "journal"), cwd=ROOT
    )
    slowest = 0.0
    try:
        async with aclosing(store.subscribe(0)) as batches:
            for _ in range(30):
                await take(batches, 100)  # it is at work
                writer.send_signal(signal.SIGSTOP)
                began = time.monotonic()
                async with asyncio.timeout(PATIENCE):
                    await store.append(some_stream(), [event()], 0)
                slowest = max(slowest, time.monotonic() - began)
                writer.send_signal(signal.SIGCONT)
    finally:
        writer.kill()
        await writer.wait()
    assert slowest < 2, "an append had to wait for the stopped process"


async def test_an_outage_is_borne_for_a_while_and_then_an_error(
    database_url: str, admin: psycopg.AsyncConnection
) -> None:
    async with PostgresEventStore(database_url, patience=1) as store:
        stream, appended = some_stream(), events(2)
        await store.append(stream, events(1), 0)
        await admin.execute("select pg_advisory_lock(7261)")  # the log's lock
        both = await asyncio.gather(
            store.append(stream, appended, 1), store.append(some_stream(), events(1), 0), return_exceptions=True
        )
        assert [type(error) for error in both] == [StoreError, StoreError]
        await admin.execute("select pg_advisory_unlock(7261)")
        receipt = await store.append(stream, appended, 1)
        assert receipt.seq == 3
        assert len(await store.read(stream)) == 3


async def test_a_database_out_of_reach_or_without_a_log_is_an_error(empty_database_url: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="out of reach"):
        await PostgresEventStore(f"host={tmp_path} dbname=none", patience=0.2).__aenter__()
    async with PostgresEventStore(empty_database_url) as store:
        for attempt in (store.append(some_stream(), events(1), 0), store.head(), store.read("a")):
            with pytest.raises(StoreError, match="log"):
                await attempt


async def test_closing_settles_what_was_asked_for_and_takes_no_more(database_url: str) -> None:
    streams = [some_stream() for _ in range(50)]
    async with PostgresEventStore(database_url) as store:
        appends = [asyncio.create_task(store.append(stream, events(1), 0)) for stream in streams]
        await asyncio.sleep(0)  # they are asked for
    assert [append.result().seq for append in appends] == [1] * 50
    for attempt in (store.append(streams[0], events(1), 1), store.read(streams[0])):
        with pytest.raises(StoreError):
            await attempt
    with pytest.raises(StoreError):
        await anext(store.subscribe(0))
    async with PostgresEventStore(database_url) as store:
        with pytest.raises(StreamMoved):
            await store.append(streams[0], events(1), 0)
