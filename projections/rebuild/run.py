"""A rebuild from its beginning, or from where it was left, to its end: new tables in the place of the old ones."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from psycopg.errors import DeadlockDetected, LockNotAvailable, QueryCanceled

from projections.rebuild import jobs
from projections.rebuild.following import TooFar, catch_up, swap
from projections.rebuild.jobs import RebuildLost, RebuildRunning
from projections.rebuild.shadow import shadows_of
from projections.rebuild.slices import fold_late, fold_slice

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from psycopg import AsyncConnection

    from domain.event_store import EventStore
    from projections.advance import Led
    from projections.ports import Connections, Leases
    from projections.projection import Projection
    from projections.rebuild.jobs import Job
    from projections.rebuild.ordered_log import OrderedLog, Slice

logger = logging.getLogger(__name__)

LEASE_S, RENEW_EVERY_S = 10.0, 2.0
SLICE_EVENTS = 10_000
ENOUGH = 1_000
"""Once catching up takes no more events than these, the swap is tried."""
FIRST_PATIENCE_MS, LONGEST_PATIENCE_MS = 5, 100
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0


class OpenLog(Protocol):
    """Opens the log in the order of its streams."""

    def __call__(self, schema: str | None) -> AbstractAsyncContextManager[OrderedLog]:
        """Open it for as long as the block runs; a copy that it makes is kept in this schema (None: not for longer)."""
        ...


class Spread(Protocol):
    """Folds slices on more than one processor."""

    async def __call__(self, job: Job, position: int, numbers: Sequence[int]) -> None:
        """Return when all are folded."""
        ...


@dataclass(frozen=True, slots=True)
class Workshop:
    """What a rebuild works with."""

    database: Connections
    leases: Leases
    store: EventStore
    open_log: OpenLog


async def rebuild(workshop: Workshop, projections: Sequence[Projection], *, spread: Spread | None = None) -> None:
    """Make these projections anew in one pass over the log, or go on with what was left; then put them in place.

    Cancelled, it lets go, to be taken up again. Raises `RebuildRunning`, `ProjectionMismatch`, `RebuildLost` if
    somebody cancelled it, and what stopped it otherwise: it can be taken up again, too.
    """
    names = sorted(one.name for one in projections)
    async with _leased(workshop.leases, names):
        async with workshop.database.connection() as connection:
            job = await jobs.take(connection, projections, fast=spread is not None)
        failure: str | None = None
        try:
            await _Rebuild(workshop, job, shadows_of(projections), spread).run()
        except RebuildLost:
            async with workshop.database.connection() as connection:
                await jobs.remove_cancelled(connection, job)
            raise
        except Exception as error:
            failure = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:500]}"
            raise
        finally:
            await asyncio.shield(_let_go(workshop.database, job, failure))


async def cancel(workshop: Workshop, projections: Sequence[Projection]) -> None:
    """Leave no trace of the rebuild of these, once nobody makes it any more. Raises `RebuildRunning`."""
    leased = _leased(workshop.leases, sorted(one.name for one in projections))
    async with leased, workshop.database.connection() as connection:
        await jobs.remove_of(connection, projections)


class _Rebuild:
    """One rebuild under its leases."""

    def __init__(self, workshop: Workshop, job: Job, leds: Sequence[Led], spread: Spread | None) -> None:
        self._workshop, self._job, self._leds, self._spread = workshop, job, leds, spread

    async def run(self) -> None:
        position = await self._begun()
        async with self._workshop.open_log(self._job.shadow.schema) as log:
            await self._fold(log, position)
            await self._index(log, position)
        await self._swap()

    async def _begun(self) -> int:
        """Make the empty tables, unless they are there; return the position up to which the log is cut."""
        head = await self._workshop.store.head()
        async with self._written() as connection:
            position = await jobs.position_of(connection, self._job)
            if position is None:
                position = head
                await self._job.shadow.create(connection, self._leds, position)
                await jobs.begin(connection, self._job, position)
        return position

    async def _fold(self, log: OrderedLog, position: int) -> None:
        async with self._workshop.database.connection() as connection:
            cut = await jobs.is_cut(connection, self._job)
        if not cut:
            slices = await log.slices(SLICE_EVENTS)
            async with self._written() as connection:
                await jobs.keep_slices(connection, self._job, slices)
        slices_left = await self._open_slices()
        if self._spread is not None and len(slices_left) > 1:
            try:
                await self._spread(self._job, position, [number for number, _ in slices_left])
                slices_left = await self._open_slices()
            except Exception:
                async with self._workshop.database.connection() as connection:
                    await self._job.hold(connection)  # that they failed because of this is to be said
                raise
        for number, piece in slices_left:
            await fold_slice(self._workshop.database, self._job, self._leds, log, number, piece, position)

    async def _open_slices(self) -> list[tuple[int, Slice]]:
        async with self._workshop.database.connection() as connection:
            return await jobs.open_slices(connection, self._job)

    async def _index(self, log: OrderedLog, position: int) -> None:
        async with self._written() as connection:
            if not await jobs.is_indexed(connection, self._job):
                await self._job.shadow.index(connection, self._leds, fast=self._job.fast)
                await jobs.set_indexed(connection, self._job)
        async with self._workshop.database.connection() as connection:
            late = await jobs.late_slices(connection, self._job)
        leds = {led.projection.name: led for led in self._leds}
        for number, piece, names in late:
            async with self._written() as connection:
                for name in names:
                    await fold_late(connection, leds[name], log, piece, position)
                await jobs.finish_late(connection, self._job, number)

    async def _swap(self) -> None:
        patience, pause = FIRST_PATIENCE_MS, FIRST_PAUSE_S
        while True:
            async with self._workshop.database.connection() as connection:
                while await catch_up(connection, self._job, self._leds, self._workshop.store) > ENOUGH:
                    pass
                try:
                    await swap(connection, self._job, self._leds, self._workshop.store, patience)
                except TooFar:
                    continue
                except (LockNotAvailable, QueryCanceled, DeadlockDetected):
                    logger.info("somebody reads a table for long", extra={"action": "swap_retried"})
                else:
                    return
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            patience, pause = min(patience * 2, LONGEST_PATIENCE_MS), min(pause * 2, LONGEST_PAUSE_S)

    @asynccontextmanager
    async def _written(self) -> AsyncIterator[AsyncConnection]:
        """Hold a transaction in the shadow that only this holder of the rebuild may commit."""
        async with self._workshop.database.connection() as connection, self._job.shadow.entered(connection):
            await self._job.hold(connection)
            yield connection


@asynccontextmanager
async def _leased(leases: Leases, names: Sequence[str]) -> AsyncIterator[None]:
    """Hold the leases of all these rebuilds, or none: `RebuildRunning`. Losing one cancels the block: `RebuildLost`."""
    holder = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
    epochs: dict[str, int] = {}
    owner = asyncio.current_task()
    lost = False

    async def renew() -> None:
        nonlocal lost
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            try:
                held = await leases.renew(epochs, holder, LEASE_S)
            except Exception as error:  # the token fences: should another one take over, nothing more is written here
                logger.warning("leases of a rebuild: %s", error, extra={"action": "leases_failed"})
                continue
            if held != set(epochs):
                lost = True
                if owner is not None:
                    owner.cancel()
                return

    try:
        for name in names:
            key = f"rebuild:{name}"
            epoch = await leases.acquire(key, holder, LEASE_S)
            if epoch is None:
                raise RebuildRunning(f"{name} is being rebuilt already; see `rejoinder projections`")
            epochs[key] = epoch
        renewing = asyncio.create_task(renew(), name="leases of a rebuild")
        try:
            yield
        except asyncio.CancelledError:
            if not lost or owner is None:
                raise
            owner.uncancel()
            raise RebuildLost("another process goes on with the rebuild") from None
        finally:
            renewing.cancel()
            await asyncio.wait({renewing})
    finally:
        if epochs:
            await asyncio.shield(leases.release(epochs, holder))


async def _let_go(database: Connections, job: Job, error: str | None) -> None:
    async with database.connection() as connection:
        await jobs.let_go(connection, job, error)
