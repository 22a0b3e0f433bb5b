"""The connections to PostgreSQL: pool, notifications, clock, and what they do when the server goes away."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import UTC, timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from infra import database as database_module
from infra import pool
from infra.clock import Clock
from infra.database import Database, DatabaseRefused, DatabaseUnavailable
from tests.support.slack import PATIENCE_S, SLACK_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def database(empty_database_url: str) -> AsyncIterator[Database]:
    async with Database(empty_database_url) as opened:
        yield opened


async def _kill_connections(database: Database) -> None:
    async with await database.connect() as connection:
        await connection.execute(
            "select pg_terminate_backend(pid, 60000) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid()"
        )


async def test_connections_say_whose_they_are_and_do_not_hold_locks_while_stopped(database: Database) -> None:
    async with database.connection() as connection:
        cursor = await connection.execute(
            "select current_setting('application_name'), current_setting('idle_in_transaction_session_timeout')"
        )
        assert await cursor.fetchone() == ("rejoinder", "5s")
        assert connection.autocommit


async def test_l12_who_sleeps_inside_a_transaction_loses_it(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "IDLE_IN_TRANSACTION_TIMEOUT_S", 0.2)
    async with Database(empty_database_url) as database:
        async with database.connection() as connection:
            await connection.execute("create table shared (id int)")

        async def use() -> None:
            async with database.connection() as connection:
                await connection.execute("insert into shared values (1)")

        async def sleep() -> None:
            async with database.connection() as connection, connection.transaction():
                await connection.execute("lock table shared")
                await use()

        with pytest.raises(DatabaseUnavailable, match="idle-in-transaction"):
            await sleep()
        await use()


async def test_a_connection_that_is_lost_raises_one_clear_error(database: Database) -> None:
    async def lose() -> None:
        async with database.connection() as connection:
            await _kill_connections(database)
            await connection.execute("select 1")

    with pytest.raises(DatabaseUnavailable, match="terminating connection"):
        await lose()


async def test_a_rule_of_the_database_stays_its_own_error(database: Database) -> None:
    async def divide() -> None:
        async with database.connection() as connection:
            await connection.execute("select 1 / 0")

    with pytest.raises(psycopg.errors.DivisionByZero):
        await divide()


async def test_connections_that_died_in_the_pool_are_replaced_unseen_and_at_once(database: Database) -> None:
    for _ in range(3):
        async with AsyncExitStack() as stack:
            many = [await stack.enter_async_context(database.connection()) for _ in range(8)]
            for one in many:
                assert await (await one.execute("select 1")).fetchone() == (1,)
        await _kill_connections(database)
        async with asyncio.timeout(2 + SLACK_S), database.connection() as one:
            assert await (await one.execute("select 1")).fetchone() == (1,)


async def test_no_more_are_lent_than_there_may_be_and_who_waited_goes_on(empty_database_url: str) -> None:
    async with Database(empty_database_url, max_connections=1, wait_s=0.2) as database:
        async with database.connection():
            with pytest.raises(DatabaseUnavailable, match="no connection was free"):
                async with database.connection():
                    pass
        async with database.connection() as connection:
            await connection.execute("select 1")


async def test_what_somebody_left_unfinished_is_lent_to_nobody_else(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute("begin")
        first = connection.info.backend_pid
    async with database.connection() as connection:
        assert connection.info.transaction_status == TransactionStatus.IDLE
        assert connection.info.backend_pid != first


@asynccontextmanager
async def outage(database_url: str) -> AsyncIterator[None]:
    """Let nobody into a database during the block."""
    name = conninfo_to_dict(database_url)["dbname"]
    server = await psycopg.AsyncConnection.connect(make_conninfo(database_url, dbname="postgres"), autocommit=True)
    async with server:
        await server.execute(f'alter database "{name}" allow_connections false'.encode())
        await server.execute("select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = %s", [name])
        try:
            yield
        finally:
            await server.execute(f'alter database "{name}" allow_connections true'.encode())


async def test_who_waits_when_an_outage_ends_goes_on_soon_after_it(
    empty_database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(database: Database) -> None:
        async with database.connection() as connection:
            await connection.execute("select 1")

    async with Database(empty_database_url, wait_s=2 * PATIENCE_S) as database:
        async with outage(empty_database_url):
            waiting = [asyncio.create_task(use(database)) for _ in range(20)]
            async with asyncio.timeout(PATIENCE_S):
                while "the database is away" not in caplog.text:  # noqa: ASYNC110 - a log cannot be waited for
                    await asyncio.sleep(0.05)
        async with asyncio.timeout(PATIENCE_S / 4):
            await asyncio.gather(*waiting)


async def test_in_an_outage_that_is_known_one_attempt_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "KNOWN_AWAY_S", 0.0)
    attempts = 0

    async def refuse() -> psycopg.AsyncConnection:
        nonlocal attempts
        attempts += 1
        raise psycopg.OperationalError("nobody is let in")

    lending = pool.Pool(refuse, size=1, wait_s=0.05)
    with pytest.raises(pool.NoConnection, match="nobody"):
        async with lending.lent():
            pass
    await asyncio.sleep(0.05)  # for so long it is borne
    attempts = 0
    with pytest.raises(pool.NoConnection, match="nobody"):
        async with lending.lent():
            pass
    assert attempts == 1


async def test_a_server_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnavailable, match="database is unavailable"):
        async with Database(f"host={tmp_path} dbname=postgres"):
            pass


async def test_an_old_server_is_refused(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "OLDEST_SERVER", 990000)

    with pytest.raises(DatabaseRefused, match="needs 14"):
        async with Database(empty_database_url):
            pass


async def test_listening_begins_again_after_a_loss_and_says_so(database: Database) -> None:
    async with aclosing(database.listen(["news", "Other News"])) as notifications:
        assert await anext(notifications) is None
        async with database.connection() as connection:
            await connection.execute("select pg_notify('news', 'one'), pg_notify('Other News', 'two')")
        heard = [await anext(notifications), await anext(notifications)]
        assert [(n.channel, n.payload) for n in heard if n] == [("news", "one"), ("Other News", "two")]

        await _kill_connections(database)

        assert await anext(notifications) is None
        async with database.connection() as connection:
            await connection.execute("select pg_notify('news', 'three')")
        again = await anext(notifications)
        assert again is not None
        assert again.payload == "three"


async def test_listening_ends_at_once_when_it_is_cancelled(database: Database) -> None:
    listening = asyncio.Event()

    async def listen() -> None:
        async with aclosing(database.listen(["news"])) as notifications:
            async for _ in notifications:
                listening.set()

    task = asyncio.create_task(listen())
    await listening.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, PATIENCE_S)


@pytest.mark.parametrize("wrong_by_s", [0, 3600, -3600])
async def test_the_clock_tells_the_time_of_the_database_however_wrong_this_machine_is(
    database: Database, wrong_by_s: float
) -> None:
    began = time.monotonic()
    async with Clock(database, wall=lambda: time.time() + wrong_by_s) as clock, database.connection() as connection:
        slack = timedelta(seconds=time.monotonic() - began)  # no trip to the server and back took longer
        before = clock.now()
        cursor = await connection.execute("select clock_timestamp()")
        after = clock.now()
        row = await cursor.fetchone()

    assert row is not None
    assert before - slack <= row[0] <= after + slack
    assert before.tzinfo is UTC
