"""A process that folds slices for a rebuild which several share: ``python -m api.rebuild_slices``, started by that."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING
from uuid import UUID

from api.app import opened_stores
from api.rebuilder import environment_of
from api.rebuilding import collect_garbage_rarely, workshop_of
from infra.log_setup import configure_logging
from infra.settings import load_settings
from projections.rebuild.jobs import Job, RebuildLost, open_slices
from projections.rebuild.shadow import Shadow, shadows_of
from projections.rebuild.slices import fold_slice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infra.settings import Settings


class Processes:
    """Folds slices in as many processes as there are processors (a `projections.rebuild.run.Spread`)."""

    def __init__(self, settings: Settings, dsn: str, names: Sequence[str]) -> None:
        self._environment = os.environ | environment_of(settings, dsn)
        self._names = names

    async def __call__(self, job: Job, position: int, numbers: Sequence[int]) -> None:
        """Return when all are folded. Raises `RuntimeError` if a process fails; none is left behind."""
        count = min(os.cpu_count() or 1, len(numbers))
        async with asyncio.TaskGroup() as group:
            for n in range(count):
                group.create_task(self._run(job, position, numbers[n::count]))

    async def _run(self, job: Job, position: int, numbers: Sequence[int]) -> None:
        work = {
            "job": [str(job.id), str(job.token), job.shadow.schema, job.shadow.live],
            "names": list(self._names),
            "position": position,
            "numbers": list(numbers),
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "api.rebuild_slices", json.dumps(work)),
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            if await process.wait():
                raise RuntimeError("a process that folds a part of the log has failed; its own message says why")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def main(job: Sequence[str], names: Sequence[str], position: int, numbers: Sequence[int]) -> None:
    """Fold the slices of these numbers."""
    rebuild, token, schema, live = job
    mine = Job(UUID(rebuild), UUID(token), Shadow(schema, live), fast=True)
    # who has started this is gone: others go on
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), os._exit, 1)
    settings = load_settings()
    configure_logging(settings.log_format, "WARNING")
    async with opened_stores(settings) as stores:
        known = {one.name: one for one in stores.projections}
        leds = shadows_of([known[name] for name in names])
        async with stores.database.connection() as connection:
            pieces = dict(await open_slices(connection, mine))
        collect_garbage_rarely()
        workshop = workshop_of(stores)
        async with workshop.open_log(schema) as log:
            for number in numbers:
                if number in pieces:
                    await fold_slice(workshop.database, mine, leds, log, number, pieces[number], position)


if __name__ == "__main__":
    try:
        asyncio.run(main(**json.loads(sys.argv[1])))
    except RebuildLost:  # as whoever has started this will find out
        sys.exit(1)
