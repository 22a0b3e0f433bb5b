"""Statements to the log's database: their time limits, what counts as an outage, and how long one is borne."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, TypeVar

import psycopg

from domain.event_store import StoreError
from infra.database import DatabaseUnavailable, first_line
from infra.hanging_up import hung_up_after
from infra.pool import PoolClosed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import LiteralString

    from psycopg import AsyncConnection
    from psycopg.abc import Params
    from psycopg.rows import TupleRow

logger = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.02, 1.0
KNOWN_AWAY_SECONDS = 1.0

OUTAGES = ("08", "25", "40", "53", "55", "57")
"""SQLSTATE classes that pass by themselves: connection, transaction state, rollback, resources, locks, intervention."""

POISON = ("22", "23", "54")
"""SQLSTATE classes that blame the statement's values: data, constraint, size."""


async def fetch(
    connection: AsyncConnection, seconds: float, query: LiteralString, params: Params = ()
) -> list[TupleRow]:
    """Run one prepared statement with binary results; hang up on a server that does not answer in time."""
    with hung_up_after(connection, seconds):
        cursor = connection.cursor(binary=True)
        await cursor.execute(query, params, prepare=True)
        return await cursor.fetchall()


def is_outage(error: Exception) -> bool:
    """Say whether the same statement may succeed later: the server is away, restarting, busy or full."""
    if isinstance(error, DatabaseUnavailable):
        return not isinstance(error.__cause__, PoolClosed)
    if isinstance(error, psycopg.Error) and error.sqlstate is not None:
        return error.sqlstate.startswith(OUTAGES)
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError, OSError))


class Patience:
    """How long a store bears that its database is away: for `seconds`; who comes after them, for one more."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._away_since: float | None = None

    def note(self, *, away: bool) -> None:
        """Remember since when the database has been away, or that it is there."""
        if not away:
            self._away_since = None
        elif self._away_since is None:
            self._away_since = asyncio.get_running_loop().time()

    async def insist(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat `attempt` through an outage, with jittered pauses, while it is borne; then raise `StoreError`.

        Values that PostgreSQL cannot take raise `ValueError`, any other refusal `StoreError`, both at once.
        """
        clock = asyncio.get_running_loop().time
        began, pause = clock(), FIRST_PAUSE_SECONDS
        while True:
            try:
                answer = await attempt()
            except (psycopg.Error, OSError, DatabaseUnavailable) as error:
                state = getattr(error, "sqlstate", None)
                if isinstance(error, psycopg.DataError) or (state is not None and state.startswith(POISON)):
                    raise ValueError(f"PostgreSQL cannot take this: {first_line(error)}") from error
                self.note(away=is_outage(error))
                if self._away_since is None or clock() + pause > self._until(began, self._away_since):
                    raise StoreError(f"the log's database is out of reach: {first_line(error)}") from error
                if pause == FIRST_PAUSE_SECONDS:
                    logger.warning("the log's database is away: %s", first_line(error), extra={"action": "store_retry"})
            else:
                self.note(away=False)
                return answer
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _until(self, began: float, away_since: float) -> float:
        return min(began + self.seconds, max(away_since + self.seconds, began + KNOWN_AWAY_SECONDS))
