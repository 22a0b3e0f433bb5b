"""Connections that are lent and taken back; who finds none alive makes one, through outages that do not last."""

from __future__ import annotations

import asyncio
import logging
import random
import select
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from psycopg import Error, OperationalError
from psycopg.pq import PipelineStatus, TransactionStatus

from infra.hanging_up import hung_up_after

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from psycopg import AsyncConnection

logger = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 0.5
KNOWN_AWAY_S = 1.0
"""How long a server is waited for that others have waited for in vain."""
LONGEST_IDLE_S = 600.0
PONG_WITHIN_S = 2.0


class NoConnection(OperationalError):
    """All connections are lent, or the server does not let one in, for longer than one waits."""


class PoolClosed(OperationalError):
    """The pool lends nothing any more."""


class Pool:
    """Up to `size` connections, made by `connect`: nobody waits for what others are told of the server.

    A new connection is asked for until the server has been away for `wait_s`, from then on for `KNOWN_AWAY_S`.
    """

    def __init__(self, connect: Callable[[], Awaitable[AsyncConnection]], *, size: int, wait_s: float) -> None:
        self._connect, self._wait_s = connect, wait_s
        self._slots = asyncio.Semaphore(size)
        self._idle: list[tuple[float, AsyncConnection]] = []  # by when they came back
        self._away_since: float | None = None
        self._closed = False

    async def open(self) -> None:
        """Make the first connection; raises what `connect` raises."""
        self._idle.append((_now(), await self._connect()))

    async def close(self) -> None:
        """Close what is here, and what is lent when it comes back."""
        self._closed = True
        while self._idle:
            await self._idle.pop()[1].close()

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection. Raises `NoConnection`, `PoolClosed`, and what `connect` raises of a server that is there.

        Its server answered when it was last used, and has not hung up since.
        """
        deadline = _now() + self._wait_s
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError:
            raise NoConnection(f"no connection was free for {self._wait_s:g} s") from None
        try:
            connection = await self._alive() or await self._made(deadline)
            try:
                yield connection
            finally:
                await self._take_back(connection)
        finally:
            self._slots.release()

    async def _alive(self) -> AsyncConnection | None:
        while self._idle:
            _, connection = self._idle.pop()
            if await _still_there(connection):
                self._away_since = None
                return connection
        return None

    async def _made(self, deadline: float) -> AsyncConnection:
        pause = FIRST_PAUSE_S
        while True:
            if self._closed:
                raise PoolClosed("the pool is closed")
            began = _now()
            try:
                async with asyncio.timeout_at(deadline):
                    connection = await self._connect()
            except (OperationalError, TimeoutError) as error:
                if self._away_since is None:
                    self._away_since = began
                    logger.warning("the database is away: %s", error, extra={"action": "database_away"})
                known = max(self._away_since + self._wait_s, deadline - self._wait_s + KNOWN_AWAY_S)
                if _now() + pause > min(known, deadline):
                    raise NoConnection(str(error) or f"it does not answer within {self._wait_s:g} s") from error
            else:
                self._away_since = None
                return connection
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(pause * 2, LONGEST_PAUSE_S)

    async def _take_back(self, connection: AsyncConnection) -> None:
        state = connection.pgconn
        idle = state.transaction_status == TransactionStatus.IDLE and state.pipeline_status == PipelineStatus.OFF
        if self._closed or not idle:  # who was interrupted may have left anything behind
            await connection.close()
            return
        self._idle.append((_now(), connection))
        while self._idle[0][0] < _now() - LONGEST_IDLE_S:
            await self._idle.pop(0)[1].close()


async def _still_there(connection: AsyncConnection) -> bool:
    """Ask the server only where there is a sign: an idle connection has nothing to read but its own end."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if poll.poll(0):
        try:
            with hung_up_after(connection, PONG_WITHIN_S):
                await connection.execute("")
        except BaseException as error:  # a cancellation too: nobody else could close it
            await connection.close()
            if not isinstance(error, Error):
                raise
    return not connection.closed


def _now() -> float:
    return asyncio.get_running_loop().time()
