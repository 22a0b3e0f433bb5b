"""The way to PostgreSQL: a pool of connections, connections of one's own, and notifications that survive a restart."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Self

from psycopg import AsyncConnection, Error, Notify, OperationalError, sql
from psycopg.conninfo import make_conninfo

from infra.cancellations import cancellations
from infra.hanging_up import hung_up_after
from infra.pool import Pool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence

logger = logging.getLogger(__name__)

OLDEST_SERVER = 140000
CONNECT_TIMEOUT_S = 5
IDLE_IN_TRANSACTION_TIMEOUT_S = 5
"""A process that is stopped inside a transaction holds its locks no longer than this."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
LONGEST_LOAN_S = 20.0
"""A connection of the pool that is lent for longer is taken for dead: whoever lent it is let go."""
PING_AFTER_S, PONG_WITHIN_S = 2.0, 2.0
"""Who listens and hears nothing asks whether the server is still there: a silent death is known within the sum."""

CONNECTION_LOST = {"08000", "08001", "08003", "08004", "08006", "57P01", "57P02", "57P03", "53300", "25P03"}
"""SQLSTATEs of the network, and of a server that goes down, comes up, is full, or has given up on us."""


class DatabaseUnavailable(Exception):
    """PostgreSQL cannot be reached or went away; whether a statement that was under way took effect is unknown."""


class DatabaseRefused(Exception):
    """The server is there, but not one that Rejoinder can work with."""


class Database:
    """A PostgreSQL database, from ``async with`` on: autocommit connections that work through a transaction pooler.

    Only `listen` needs a connection to the server itself. `wait_s` is how long `connection` waits for one, also when an
    outage begins; in one that has lasted for longer it waits a second.
    """

    def __init__(
        self,
        dsn: str,
        *,
        max_connections: int = 10,
        application_name: str = "rejoinder",
        wait_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        self._dsn = make_conninfo(
            dsn,
            application_name=application_name,
            connect_timeout=CONNECT_TIMEOUT_S,
            # a server whose machine is gone is noticed in half a minute
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=25_000,  # ms; keepalives say nothing while something that was sent waits for its answer
        )
        self._pool = Pool(self._connect, size=max_connections, wait_s=wait_s)

    async def __aenter__(self) -> Self:
        """Connect. Raises `DatabaseUnavailable`, or `DatabaseRefused` for a server that is too old."""
        with _connection_errors():
            await self._pool.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close()

    @asynccontextmanager
    async def connection(self, longest_s: float = LONGEST_LOAN_S) -> AsyncIterator[AsyncConnection]:
        """Lend a connection of the pool, in autocommit mode: ``connection.transaction()`` groups statements.

        Raises `DatabaseUnavailable`, also for connections that are lost while they are lent, as they are after
        `longest_s`: work of minutes takes a connection of its own (`connect`).
        """
        with _connection_errors():
            cancelled = cancellations()
            async with self._pool.lent() as connection:
                if cancellations() > cancelled:  # Python 3.11 forgets one that meets what it waits for
                    raise asyncio.CancelledError
                with hung_up_after(connection, longest_s):
                    yield connection

    async def connect(self) -> AsyncConnection:
        """Open a connection of one's own, to be closed by its owner. Raises as entering does.

        Nobody watches over it: see `hung_up_after`.
        """
        with _connection_errors():
            return await self._connect()

    async def listen(self, channels: Sequence[str]) -> AsyncGenerator[Notify | None, None]:
        """Yield notifications for ever, and None each time that listening has begun, at first and after every loss.

        On None, read what may have been missed: what commits from then on is notified. Close it
        (``aclosing``) to end it.
        """
        pause = FIRST_PAUSE_S
        while True:
            try:
                async with aclosing(self._listen_once(channels)) as notifications:
                    async for notification in notifications:
                        pause = FIRST_PAUSE_S
                        yield notification
            except DatabaseUnavailable as exc:
                logger.warning("not listening to the database: %s", exc, extra={"action": "listen_lost"})
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(pause * 2, LONGEST_PAUSE_S)

    async def _connect(self) -> AsyncConnection:
        connection = await AsyncConnection.connect(self._dsn, autocommit=True)
        try:
            await _configure(connection)
        except BaseException:  # a cancellation too: nobody else could close it
            await connection.close()
            raise
        return connection

    async def _listen_once(self, channels: Sequence[str]) -> AsyncGenerator[Notify | None, None]:
        with _connection_errors():
            async with await self.connect() as connection:
                with hung_up_after(connection, PONG_WITHIN_S):
                    for channel in channels:
                        await connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
                yield None
                while True:
                    async with aclosing(connection.notifies(timeout=PING_AFTER_S)) as notifications:
                        async for notification in notifications:
                            yield notification
                    with hung_up_after(connection, PONG_WITHIN_S):
                        await connection.execute("select")


async def _configure(connection: AsyncConnection) -> None:
    found = connection.info.server_version
    if found < OLDEST_SERVER:
        raise DatabaseRefused(f"the database runs PostgreSQL {found // 10000}: Rejoinder needs 14 or later")
    # a statement, not a start-up option, because poolers refuse those
    with hung_up_after(connection, CONNECT_TIMEOUT_S):
        cursor = await connection.execute(
            "select set_config('idle_in_transaction_session_timeout', %s, false), pg_backend_pid()",
            [f"{IDLE_IN_TRANSACTION_TIMEOUT_S}s"],
        )
        row = await cursor.fetchone()
    if row is None or row[1] != connection.info.backend_pid:
        # a transaction pooler answers for the server: what is prepared here may be executed on another connection
        connection.prepare_threshold = None


def first_line(error: Exception) -> str:
    """What an error says, without PostgreSQL's details, which may quote data."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


@contextmanager
def _connection_errors() -> Iterator[None]:
    try:
        yield
    except Error as exc:
        state = exc.sqlstate
        lost = state in CONNECTION_LOST if state else isinstance(exc, OperationalError)
        if not lost:
            raise
        raise DatabaseUnavailable(f"the database is unavailable: {first_line(exc)}") from exc
