"""Projections that stand at the same position move together, in one transaction; one that fails goes on alone."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from projections.advance import Led, NotLeading, advance
from projections.leading import PAUSED, take_over
from projections.parking import advance_but_poison
from projections.reasons import reason_of

if TYPE_CHECKING:
    from projections.feed import Feed
    from projections.ports import Connections

logger = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
LOOK_EVERY_S = 1.0
"""How often a paused projection is looked at."""
TRIES = 3
"""What fails so often in one place is folded piece by piece: what cannot be is parked."""
FAILED = """
update projections set error = %s, status = case status when 'paused' then status else 'failing' end
where name = %s and epoch = %s
"""
STATUS = "select status from projections where name = %s"


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
        """Project until another process leads, through pauses. What fails is tried again, for ever; see `TRIES`."""
        tries, position = 0, -1
        while True:
            try:
                async with self._database.connection() as connection:
                    checkpoint = await take_over(connection, led)
                tries, position = (tries if checkpoint.position == position else 0), checkpoint.position
                if checkpoint.paused:
                    await self._resumed(led)
                else:
                    tries += await self._travel(led, position, tries=tries)
            except NotLeading:
                return
            except Exception as error:
                await self._record(led, error)
                tries += 1
                pause = min(FIRST_PAUSE_S * 2 ** min(tries - 1, 10), LONGEST_PAUSE_S)
                await asyncio.sleep(pause * random.uniform(0.5, 1))

    async def _resumed(self, led: Led) -> None:
        status = PAUSED
        while status == PAUSED:
            await asyncio.sleep(LOOK_EVERY_S)
            async with self._database.connection() as connection:
                row = await (await connection.execute(STATUS, [led.projection.name])).fetchone()
            status = row[0] if row else ""

    async def _travel(self, led: Led, position: int, *, tries: int) -> bool:
        """Move on with those who wait at the position; True if that failed and should be tried alone."""
        convoy = None if tries else self._waiting_at(position)
        if convoy is None:
            convoy = Convoy(position)
            convoy.members.append(led)
            await self._drive(convoy, tries=tries)
        else:
            convoy.members.append(led)
            try:
                await convoy.over.wait()
            finally:
                convoy.members.remove(led)
        return convoy.failed

    async def _drive(self, convoy: Convoy, *, tries: int) -> None:
        """Move a convoy until it meets another. Raises what fails if there is one member, else the convoy `failed`."""
        self._convoys.append(convoy)
        try:
            while True:
                convoy.waits = not tries  # what was tried in vain is tried alone
                span = await self._feed.next(convoy.position)
                convoy.waits = False
                async with self._database.connection() as connection:
                    if tries < TRIES:
                        await advance(connection, tuple(convoy.members), span)
                    else:
                        await advance_but_poison(connection, convoy.members[0], span, attempts=tries + 1)
                convoy.position, tries = span.position, 0
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
        reason = reason_of(error)
        logger.warning("projection %s failed: %s", name, reason, extra={"action": "projection_failed"})
        try:
            async with self._database.connection() as connection:
                await connection.execute(FAILED, [reason, name, led.epoch])
        except Exception as unrecorded:
            logger.warning("that could not be recorded: %s", unrecorded, extra={"action": "projection_failed"})
