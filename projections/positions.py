"""Read your writes: wait until read models have reached a position of the log."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, NoReturn, Protocol

from projections.convoys import Connections

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Sequence

    from psycopg import Notify

CHANNEL = "projected"
LOOK_EVERY_S = 1.0
"""Should a notification be lost, whoever waits looks for himself this often."""
REACHED = "select coalesce(min(position), 0), count(*) from projections where name = any(%s)"


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

    async def run(self) -> NoReturn:
        """Listen for moved checkpoints until cancelled."""
        while True:
            async with aclosing(self._database.listen([CHANNEL])) as notifications:
                async for notification in notifications:
                    if notification is None:  # what was true of the server before may not be of this one
                        self._reached.clear()
                    else:
                        self._take(notification.payload)
                    moved, self._moved = self._moved, asyncio.Event()
                    moved.set()

    async def wait(self, names: Collection[str], position: int, timeout_s: float) -> bool:
        """Wait until all these read models have folded the log up to a position; False if they don't in time.

        What is read after True, on any connection to this server, contains the events up to there.
        """
        clock = asyncio.get_running_loop().time
        look_at, deadline = clock(), clock() + timeout_s
        while True:
            moved = self._moved
            if all(self._reached.get(name, -1) >= position for name in names):
                return True
            if (now := clock()) >= look_at:
                if await self._have_reached(names, position):
                    return True
                look_at = clock() + LOOK_EVERY_S
            if now >= deadline:
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(look_at, deadline)):
                    await moved.wait()

    async def _have_reached(self, names: Collection[str], position: int) -> bool:
        async with self._database.connection() as connection:
            row = await (await connection.execute(REACHED, [list(names)])).fetchone()
        return row is not None and row[0] >= position and row[1] == len(set(names))

    def _take(self, payload: str) -> None:
        position, *names = payload.split()
        for name in names:
            self._reached[name] = int(position)
