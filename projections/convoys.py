"""Projections that stand at the same position move together, in one transaction; one that fails goes on alone."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Protocol

from projections.advance import Led, NotLeading, advance, take_over

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from psycopg import AsyncConnection

    from projections.feed import Feed

logger = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 5.0
FAILED = "update projections set status = 'failing', error = %s where name = %s and epoch = %s"


class Connections(Protocol):
    """A pool of connections in autocommit mode."""

    def connection(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Lend a connection."""
        ...


class Convoy:
    """Projections that one task moves, the first's; those who stand where it `waits` may join until it is `over`."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.members: list[Led] = []
        self.waits = self.failed = False
        self.over = asyncio.Event()


class Convoys:
    """Moves each projection that this process leads from its checkpoint on, as long as it leads it."""

    def __init__(self, database: Connections, feed: Feed) -> None:
        self._database, self._feed = database, feed
        self._convoys: list[Convoy] = []

    async def follow(self, led: Led) -> None:
        """Project until another process leads. What fails is tried again, for ever, and the reason recorded."""
        alone, pause, position, failed_at = False, FIRST_PAUSE_S, -1, -1
        while True:
            try:
                async with self._database.connection() as connection:
                    position = await take_over(connection, led)
                alone = await self._travel(led, position, alone=alone)
            except NotLeading:
                return
            except Exception as error:
                await self._record(led, error)
                pause = min(pause * 2, LONGEST_PAUSE_S) if position == failed_at else FIRST_PAUSE_S
                alone, failed_at = True, position
                await asyncio.sleep(pause * random.uniform(0.5, 1))

    async def _travel(self, led: Led, position: int, *, alone: bool) -> bool:
        """Move on with those who wait at the position; True if that failed and should be tried alone."""
        convoy = None if alone else self._waiting_at(position)
        if convoy is None:
            convoy = Convoy(position)
            convoy.members.append(led)
            await self._drive(convoy, alone=alone)
        else:
            convoy.members.append(led)
            try:
                await convoy.over.wait()
            finally:
                convoy.members.remove(led)
        return convoy.failed

    async def _drive(self, convoy: Convoy, *, alone: bool) -> None:
        """Move a convoy until it meets another. Raises what fails if there is one member, else the convoy `failed`."""
        self._convoys.append(convoy)
        try:
            while True:
                convoy.waits = not alone
                span = await self._feed.next(convoy.position)
                convoy.waits = False
                async with self._database.connection() as connection:
                    await advance(connection, tuple(convoy.members), span)
                convoy.position, alone = span.position, False
                if self._waiting_at(convoy.position):
                    return
        except Exception as error:
            convoy.failed = True
            if len(convoy.members) == 1 and not isinstance(error, NotLeading):
                raise
            logger.info("projections go on one by one: %s", error, extra={"action": "convoy_failed"})
        finally:
            self._convoys.remove(convoy)
            convoy.over.set()

    def _waiting_at(self, position: int) -> Convoy | None:
        return next((convoy for convoy in self._convoys if convoy.waits and convoy.position == position), None)

    async def _record(self, led: Led, error: Exception) -> None:
        name = led.projection.name
        # the first line: what follows may quote a message
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:500]}"
        logger.warning("projection %s failed: %s", name, reason, extra={"action": "projection_failed"})
        try:
            async with self._database.connection() as connection:
                await connection.execute(FAILED, [reason, name, led.epoch])
        except Exception as unrecorded:
            logger.warning("that could not be recorded: %s", unrecorded, extra={"action": "projection_failed"})
