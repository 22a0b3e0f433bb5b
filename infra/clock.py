"""The time of all decisions: PostgreSQL's clock, read through an offset that every process keeps."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from infra.database import DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from infra.database import Database

logger = logging.getLogger(__name__)

REFRESH_S = 30.0
SAMPLES = 3


class Clock:
    """PostgreSQL's clock without asking it each time; measured on entering, then every half a minute.

    Its error is at most half of the shortest of a few round trips.
    """

    def __init__(self, database: Database, wall: Callable[[], float] = time.time) -> None:
        self._database = database
        self._wall = wall  # not the monotonic clock, which stands still while a machine sleeps
        self._offset_s = 0.0
        self._refresher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.measure()
        self._refresher = asyncio.create_task(self._refresh(), name="clock")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._refresher is not None:
            self._refresher.cancel()
            with suppress(asyncio.CancelledError):
                await self._refresher

    def now(self) -> datetime:
        """Return the database's time, UTC."""
        return datetime.fromtimestamp(self._wall() + self._offset_s, UTC)

    async def measure(self) -> None:
        """Take the offset anew. Raises `DatabaseUnavailable`."""
        samples = []
        async with self._database.connection() as connection:
            for _ in range(SAMPLES):
                asked = self._wall()
                cursor = await connection.execute("select extract(epoch from clock_timestamp())::float8")
                answered = self._wall()
                row = await cursor.fetchone()
                assert row is not None, "a select without from has one row"
                samples.append((answered - asked, row[0] - (asked + answered) / 2))
        self._offset_s = min(samples)[1]

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await self.measure()
            except DatabaseUnavailable as exc:  # the old offset serves until the next time
                logger.warning("the clock was not measured: %s", exc, extra={"action": "clock_kept"})
