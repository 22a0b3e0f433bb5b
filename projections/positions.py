"""Read your writes: wait until read models have reached a position of the log."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, NoReturn, Protocol

from projections.ports import Connections

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Sequence

    from psycopg import Notify

CHANNEL = "projected"
LOOK_EVERY_S = 1.0
"""Should a notification be lost, those who wait look for themselves this often: one look is for all of them."""
POSITIONS = "select name, position from projections"


class Listener(Connections, Protocol):
    """A database that can be listened to."""

    def listen(self, channels: Sequence[str]) -> AsyncGenerator[Notify | None, None]:
        """Yield notifications, and None whenever listening has begun."""
        ...


class Positions:
    """How far read models are, for those who wait. Without `run` it still answers, by looking once a second."""

    def __init__(self, database: Listener) -> None:
        self._database = database
        self._reached: dict[str, int] = {}
        self._moved = asyncio.Event()
        self._looking = asyncio.Lock()
        self._looked_at = -LOOK_EVERY_S

    async def run(self) -> NoReturn:
        """Listen for moved checkpoints until cancelled."""
        while True:
            async with aclosing(self._database.listen([CHANNEL])) as notifications:
                async for notification in notifications:
                    if notification is None:  # what was true of the server before may not be of this one
                        self._reached = {}
                        self._looked_at = -LOOK_EVERY_S
                    else:
                        self._take(notification.payload)
                    moved, self._moved = self._moved, asyncio.Event()
                    moved.set()

    async def wait(self, names: Collection[str], position: int, timeout_s: float) -> bool:
        """Wait until all these read models have folded the log up to a position; False if they don't in time.

        What is read after True, on any connection to this server, contains the events up to there.
        """
        clock = asyncio.get_running_loop().time
        began, deadline = clock(), clock() + timeout_s
        while any(self._reached.get(name, -1) < position for name in names):
            now, look_at = clock(), self._looked_at + LOOK_EVERY_S
            if now >= look_at or (now >= deadline and self._looked_at < began):
                await self._look()
            elif now >= deadline:
                return False
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(min(look_at, deadline)):
                        await self._moved.wait()
        return True

    async def _look(self) -> None:
        """Ask the database, unless somebody has while one waited for his turn."""
        clock = asyncio.get_running_loop().time
        asked = clock()
        async with self._looking:
            if self._looked_at >= asked:
                return
            reached, asked = self._reached, clock()
            async with self._database.connection() as connection:
                for name, position in await (await connection.execute(POSITIONS)).fetchall():
                    reached[name] = max(position, reached.get(name, -1))
            if reached is self._reached:
                self._looked_at = asked

    def _take(self, payload: str) -> None:
        position, *names = payload.split()
        for name in names:
            self._reached[name] = max(int(position), self._reached.get(name, -1))
