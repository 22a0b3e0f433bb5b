"""The projector: leads the projections that no other process leads, and moves them along the log."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import TYPE_CHECKING, NoReturn
from uuid import uuid4

from projections.advance import Led
from projections.convoys import Convoys
from projections.feed import Feed
from projections.healing import heal
from projections.reasons import reason_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from domain.event_store import EventStore
    from projections.ports import Connections, Leases
    from projections.projection import Projection

logger = logging.getLogger(__name__)

LEASE_S = 5.0
LOOK_EVERY_S = 2.0
"""Leases are renewed, and those of others tried, this often: a dead leader is replaced within the sum of both."""
HAND_BACK_S = 4.0
"""A program has ten seconds to stop; and after `LEASE_S` leases have run out anyway."""

# of another version: only code of that version leads it
OF_THIS_VERSION = """
select projections.name from projections join unnest(%s::text[], %s::int[]) as mine (name, version)
    on projections.name = mine.name and projections.version = mine.version
"""


class Projector:
    """Runs projections on one of the processes that share a database; their tables must be there (`ensure_schema`)."""

    def __init__(
        self,
        store: EventStore,
        database: Connections,
        leases: Leases,
        projections: Sequence[Projection],
        *,
        lease_s: float = LEASE_S,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._store, self._database = store, database
        self._feed = Feed(store)
        self._convoys = Convoys(database, self._feed)
        self._leases, self._lease_s, self._look_every_s = leases, lease_s, look_every_s
        self._projections = {_key(projection): projection for projection in projections}
        self._holder = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self._led: dict[str, Led] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> NoReturn:
        """Project until cancelled, through outages; then hand the leases back."""
        beside = [
            asyncio.create_task(self._feed.run(), name="projections' feed"),
            asyncio.create_task(self._heal(), name="projections' healing"),
        ]
        try:
            while True:
                try:
                    await self._renew()
                    await self._lead()
                except Exception as error:  # leases only save work: who leads goes on, fenced by the epoch
                    logger.warning("leases of projections: %s", error, extra={"action": "leases_failed"})
                await asyncio.sleep(self._look_every_s)
        finally:
            tasks = (*beside, *self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._hand_back()

    async def _renew(self) -> None:
        for key in [key for key, task in self._tasks.items() if task.done()]:
            await self._drop(key)
        if self._led:
            held = await self._leases.renew(self._epochs(), self._holder, self._lease_s)
            for key in self._led.keys() - held:
                await self._drop(key)

    async def _lead(self) -> None:
        found: dict[str, Led] = {}
        try:
            for key in await self._free_to_lead():
                if epoch := await self._leases.acquire(key, self._holder, self._lease_s):
                    self._led[key] = found[key] = Led(self._projections[key], epoch)
        finally:  # together, so that those who stand at one place go on together
            for key, led in found.items():
                self._tasks[key] = asyncio.create_task(self._convoys.follow(led), name=key)
                logger.info("leading %s", key, extra={"action": "projection_led"})

    async def _free_to_lead(self) -> list[str]:
        mine = {key: one for key, one in self._projections.items() if key not in self._led}
        if not mine:
            return []
        values = [[one.name for one in mine.values()], [one.version for one in mine.values()]]
        async with self._database.connection() as connection:
            names = {name for (name,) in await (await connection.execute(OF_THIS_VERSION, values)).fetchall()}
        return [key for key, one in mine.items() if one.name in names]

    async def _heal(self) -> None:
        while True:
            await asyncio.sleep(self._look_every_s)
            for key, led in list(self._led.items()):
                try:
                    await heal(self._database, self._store, led)
                except Exception as error:
                    logger.warning("%s is not healed: %s", key, reason_of(error), extra={"action": "heal_failed"})

    async def _hand_back(self) -> None:
        try:
            async with asyncio.timeout(HAND_BACK_S):
                await self._leases.release(self._epochs(), self._holder)
        except Exception as error:  # they run out by themselves
            logger.warning("leases were not handed back: %s", error, extra={"action": "leases_failed"})

    async def _drop(self, key: str) -> None:
        epoch = self._led.pop(key).epoch
        task = self._tasks.pop(key)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self._leases.release({key: epoch}, self._holder)
        logger.info("no longer leading %s", key, extra={"action": "projection_dropped"})

    def _epochs(self) -> dict[str, int]:
        return {key: led.epoch for key, led in self._led.items()}


def _key(projection: Projection) -> str:
    return f"projection:{projection.name}"
