"""Connections to the log's database: their settings, what counts as an outage, and how long one is borne."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg_pool import PoolClosed

from domain.event_store import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from typing import LiteralString

    from psycopg.abc import Params
    from psycopg.rows import TupleRow

logger = logging.getLogger(__name__)
T = TypeVar("T")

CONNECT_SECONDS = 5

SETTINGS: LiteralString = """
    select set_config(name, wanted, false) from pg_settings join (values
        ('lock_timeout', '2s'),
        ('idle_in_transaction_session_timeout', '5s'),
        ('transaction_timeout', '10s'),
        ('default_transaction_isolation', 'read committed')
    ) as w (setting_name, wanted) on setting_name = name
"""
"""Set after connecting, not as startup options, which poolers refuse. PostgreSQL 17 brought transaction_timeout."""

OUTAGES = ("08", "25", "40", "53", "55", "57")
"""SQLSTATE classes that pass by themselves: connection, transaction state, rollback, resources, locks, intervention."""

POISON = ("22", "23", "54")
"""SQLSTATE classes that blame the statement's values: data, constraint, size."""


async def configure(connection: AsyncConnection) -> None:
    """Give a new autocommit connection the log's settings."""
    with _hung_up_after(connection, CONNECT_SECONDS):
        await connection.execute(SETTINGS)


async def connect(dsn: str) -> AsyncConnection:
    """Open a connection of one's own; raises psycopg's errors."""
    connection = await AsyncConnection.connect(dsn, autocommit=True, connect_timeout=CONNECT_SECONDS)
    try:
        await configure(connection)
    except BaseException:
        await connection.close()
        raise
    return connection


async def fetch(
    connection: AsyncConnection, seconds: float, query: LiteralString, params: Params = ()
) -> list[TupleRow]:
    """Run one prepared statement with binary results; hang up on a server that does not answer in time."""
    with _hung_up_after(connection, seconds):
        cursor = connection.cursor(binary=True)
        await cursor.execute(query, params, prepare=True)
        return await cursor.fetchall()


@contextmanager
def _hung_up_after(connection: AsyncConnection, seconds: float) -> Iterator[None]:
    # Cancelling would ask the server, which is the one that does not answer; a shut socket ends the wait at once.
    def hang_up() -> None:
        with socket.socket(fileno=os.dup(connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    timer = asyncio.get_running_loop().call_later(seconds, hang_up)
    try:
        yield
    finally:
        timer.cancel()


def first_line(error: Exception) -> str:
    """What an error says, without PostgreSQL's details, which may quote data."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def is_outage(error: Exception) -> bool:
    """Say whether the same statement may succeed later: the server is away, restarting, busy or full."""
    if isinstance(error, PoolClosed):
        return False
    if isinstance(error, psycopg.Error) and error.sqlstate is not None:
        return error.sqlstate.startswith(OUTAGES)
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError, OSError))


async def insist(attempt: Callable[[], Awaitable[T]], patience: float) -> T:
    """Repeat `attempt` through an outage, with jittered pauses, for `patience` seconds; then raise `StoreError`.

    Values that PostgreSQL cannot take raise `ValueError`, any other refusal `StoreError`, both at once.
    """
    clock = asyncio.get_running_loop().time
    until, pause = clock() + patience, 0.02
    while True:
        try:
            return await attempt()
        except (psycopg.Error, OSError) as error:
            state = getattr(error, "sqlstate", None)
            if isinstance(error, psycopg.DataError) or (state is not None and state.startswith(POISON)):
                raise ValueError(f"PostgreSQL cannot take this: {first_line(error)}") from error
            if not is_outage(error) or clock() + pause > until:
                raise StoreError(f"the log's database is out of reach: {first_line(error)}") from error
            logger.warning(
                "the log's database is away, retrying: %s", first_line(error), extra={"action": "store_retry"}
            )
        await asyncio.sleep(pause * random.uniform(0.5, 1))
        pause = min(pause * 2, 1.0)
