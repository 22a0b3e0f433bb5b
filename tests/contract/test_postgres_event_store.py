"""The contract, kept by the event store on PostgreSQL; and what only a database can do to it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NoReturn
from uuid import uuid4

import psycopg
import pytest

from domain.event_store import Appended, StoreError, StreamMoved
from infra.database import DatabaseUnavailable
from infra.migrations import migrate
from infra.postgres_event_store import PostgresEventStore, appender, connection
from infra.postgres_event_store.subscriptions import HEAD
from tests.contract.outage_contract import OutageContract
from tests.contract.samples import caught_up, events, outcome, seqs, some_stream, take
from tests.contract.server_contract import ServerContract
from tests.support.postgres import own_postgres
from tests.support.program import data_directory
from tests.support.slack import PATIENCE_S, SLACK_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from psycopg.rows import TupleRow

    from infra.embedded_postgres import EmbeddedPostgres
    from tests.contract.samples import OpenStore

TERMINATE_OTHERS = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()
"""


class TestPostgresEventStore(ServerContract):
    @pytest.fixture
    def address(self, database_url: str) -> str:
        return database_url

    @pytest.fixture
    def open_store(self, database_url: str) -> OpenStore:
        return partial(PostgresEventStore, database_url, patience=PATIENCE_S)


class PostgresFaults:
    """A server of its own, which can be stopped, and loses connections."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._server = server

    async def stop(self) -> None:
        self._server.stop()  # not a kill: what is left of a killed server may answer once more

    async def start(self) -> None:
        self._server.start()

    async def drop_connections(self) -> None:
        async with await psycopg.AsyncConnection.connect(self._server.dsn, autocommit=True) as connection:
            await connection.execute(TERMINATE_OTHERS)

    @asynccontextmanager
    async def losing_acknowledgements(self) -> AsyncIterator[None]:
        async def drop_whoever_appends() -> NoReturn:
            async with await psycopg.AsyncConnection.connect(self._server.dsn, autocommit=True) as connection:
                seen: TupleRow | None = None
                while True:  # between two drops something is appended, however long that takes
                    head = await (await connection.execute(HEAD)).fetchone()
                    if head != seen:
                        seen = head
                        await connection.execute(TERMINATE_OTHERS)
                    await asyncio.sleep(0.01)

        dropping = asyncio.create_task(drop_whoever_appends())
        try:
            yield
        finally:
            dropping.cancel()
            with suppress(asyncio.CancelledError):
                await dropping


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with data_directory() as home, own_postgres(home) as server:
        asyncio.run(migrate(server.dsn))
        yield server


class TestPostgresOutages(OutageContract):
    @pytest.fixture
    def faults(self, server: EmbeddedPostgres) -> PostgresFaults:
        return PostgresFaults(server)

    @pytest.fixture
    def open_store(self, server: EmbeddedPostgres) -> OpenStore:
        return partial(PostgresEventStore, server.dsn, patience=PATIENCE_S)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresEventStore]:
    async with PostgresEventStore(database_url, patience=PATIENCE_S) as store:
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
        async with asyncio.timeout(5 + SLACK_S):
            assert seqs(await take(batches, 1)) == [1]


async def test_an_outage_is_borne_for_a_while_and_then_an_error(
    database_url: str, admin: psycopg.AsyncConnection
) -> None:
    async with PostgresEventStore(database_url, patience=PATIENCE_S) as store:
        stream, appended = some_stream(), events(2)
        await store.append(stream, events(1), 0)
        await admin.execute("select pg_advisory_lock(7261)")  # the log's lock
        store._patience.seconds = 1
        both = await asyncio.gather(
            store.append(stream, appended, 1), store.append(some_stream(), events(1), 0), return_exceptions=True
        )
        assert [type(error) for error in both] == [StoreError, StoreError]
        store._patience.seconds = PATIENCE_S
        await admin.execute("select pg_advisory_unlock(7261)")
        receipt = await store.append(stream, appended, 1)
        assert receipt.seq == 3
        assert len(await store.read(stream)) == 3


async def test_an_outage_that_others_have_borne_is_not_borne_again_but_the_next_one_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "KNOWN_AWAY_SECONDS", 0.0)
    patience = connection.Patience(0.05)
    outcomes: list[Exception | None] = []

    async def attempt() -> None:
        if outcome := outcomes.pop(0):
            raise outcome

    outcomes = [DatabaseUnavailable()] * 100
    with pytest.raises(StoreError):
        await patience.insist(attempt)
    await asyncio.sleep(patience.seconds)  # for so long it is known to be away
    outcomes = [DatabaseUnavailable(), None]
    with pytest.raises(StoreError):
        await patience.insist(attempt)
    await patience.insist(attempt)
    patience.seconds = 30
    outcomes = [DatabaseUnavailable(), DatabaseUnavailable(), None]
    await patience.insist(attempt)


async def test_a_database_out_of_reach_or_without_a_log_is_an_error(empty_database_url: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="out of reach"):
        await PostgresEventStore(f"host={tmp_path} dbname=none", patience=0.2).__aenter__()
    async with PostgresEventStore(empty_database_url) as store:
        for attempt in (store.append(some_stream(), events(1), 0), store.head(), store.read("a")):
            with pytest.raises(StoreError, match="log"):
                await attempt


async def test_closing_settles_what_was_asked_for_and_takes_no_more(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender, "CLOSING_SECONDS", PATIENCE_S)
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
