"""Rebuilds as part of the role `projector`, each in a process of its own: requests and turns go on beside it."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
from typing import TYPE_CHECKING, LiteralString, NoReturn

from pydantic import SecretStr

from infra.settings import variable
from projections.rebuild.jobs import RebuildRunning, want
from projections.rebuild.run import cancel
from projections.versions import outdated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infra.settings import Settings
    from projections.projection import Projection
    from projections.rebuild.run import Workshop

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
AGAIN_AFTER_S = 30.0
"""What has failed is tried again so much later."""
STOP_S = 5.0

# Nobody makes them now, and they were not tried in vain just now.
FREE: LiteralString = """
select cancelled, fast, array_agg(name order by name), array_agg(version order by name)
from rebuilds join rebuilt_projections on rebuild = id
where failed_at is null or cancelled or failed_at < clock_timestamp() - make_interval(secs => %s)
group by id having not exists (
    select from leases where until > clock_timestamp() and key = any(array_agg('rebuild:' || name)))
"""


class Rebuilder:
    """Makes the rebuilds that are wanted or were left, one after the other; wants those that newer code needs."""

    def __init__(self, settings: Settings, dsn: str, workshop: Workshop, projections: Sequence[Projection]) -> None:
        self._settings, self._dsn, self._workshop = settings, dsn, workshop
        self._projections = {one.name: one for one in projections}

    async def run(self) -> NoReturn:
        """Look for work until cancelled, through outages."""
        if self._settings.projection_upgrade == "ignore":
            await self._say_outdated()
        while True:
            try:
                if self._settings.projection_upgrade == "auto":
                    await self._want_outdated()
                await self._make_free()
            except Exception as error:
                logger.warning("rebuilds: %s", error, extra={"action": "rebuilds_failed"})
            await asyncio.sleep(LOOK_EVERY_S * random.uniform(0.8, 1.2))

    async def _say_outdated(self) -> None:
        async with self._workshop.database.connection() as connection:
            old = await outdated(connection, self._projections.values())
        if old:
            names = " ".join(one.name for one in old)
            logger.warning(
                "older versions of read models stay and nobody moves them on: run `rejoinder rebuild %s`",
                names,
                extra={"action": "upgrade_ignored"},
            )

    async def _want_outdated(self) -> None:
        async with self._workshop.database.connection() as connection:
            if not (old := await outdated(connection, self._projections.values())):
                return
            try:
                await want(connection, old)
            except RebuildRunning:
                return
        names = ", ".join(one.name for one in old)
        logger.info("read models of an older version are rebuilt: %s", names, extra={"action": "upgrade_wanted"})

    async def _make_free(self) -> None:
        async with self._workshop.database.connection() as connection:
            found = await (await connection.execute(FREE, [AGAIN_AFTER_S])).fetchall()
        for cancelled, fast, names, versions in found:
            if [(name, self._version(name)) for name in names] != list(zip(names, versions, strict=True)):
                continue  # that is for others: older, newer, or with projections of their own
            if cancelled:
                await cancel(self._workshop, [self._projections[name] for name in names])
            else:
                await self._make(names, fast=fast)

    def _version(self, name: str) -> int | None:
        return self._projections[name].version if name in self._projections else None

    async def _make(self, names: Sequence[str], *, fast: bool) -> None:
        logger.info("rebuilding %s", ", ".join(names), extra={"action": "rebuild_started"})
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "api", "rebuild", *names, "--attached", *(["--fast"] if fast else [])),
            env=os.environ | environment_of(self._settings, self._dsn),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the server's terminal is not meant for it
        )
        try:
            exit_code = await process.wait()
        finally:
            await asyncio.shield(_stopped(process))
        logger.info("rebuild of %s ended: %d", ", ".join(names), exit_code, extra={"action": "rebuild_ended"})


async def _stopped(process: asyncio.subprocess.Process) -> None:
    """End a rebuild in a way that it can be taken up again; it notices the end of its input."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def environment_of(settings: Settings, dsn: str) -> dict[str, str]:
    """Return the variables by which another process comes to the same settings, and to this database."""
    values = {name: getattr(settings, name) for name in type(settings).model_fields} | {"database_url": dsn}
    return {variable(name): _written(value) for name, value in values.items() if value not in (None, ())}


def _written(value: object) -> str:
    match value:
        case SecretStr():
            return value.get_secret_value()
        case tuple():
            return ",".join(value)
        case _:
            return str(value)
