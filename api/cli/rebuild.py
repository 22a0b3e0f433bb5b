"""`rebuild`: make read models anew from the whole log, while the old ones serve."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.failures import WRONG_USAGE, CommandFailed
from api.cli.job import Job
from api.cli.projection_names import named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from infra.settings import Settings
    from projections.projection import Projection
    from projections.rebuild.progress import Progress
    from projections.rebuild.run import Workshop

TERMINATED = 128 + signal.SIGTERM
LONGEST_END_S = 5.0
"""When whoever has started an attached command is gone, it ends, be it in the middle of something."""
NICENESS = 10
"""Who serves goes first, unless a rebuild is to be fast."""

Names = Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Read models, as `projections` lists them.")]
All = Annotated[bool, typer.Option("--all", help="All of them, in one pass over the log.")]
Fast = Annotated[bool, typer.Option("--fast", help="Use all processors, not only one.")]
Attached = Annotated[bool, typer.Option("--attached", hidden=True)]


def rebuild(names: Names = None, everything: All = False, fast: Fast = False, attached: Attached = False) -> Job:
    """Make read models anew from the whole log, beside a running server or without one.

    The old ones serve until the new ones take their place, whole. Ctrl-C
    cancels it and leaves no trace; after a crash the same command, or a
    running server, goes on where it was.
    """
    if bool(names) == everything:
        raise CommandFailed("name the read models, or give --all; try `rejoinder rebuild --help`", WRONG_USAGE)
    return Job(partial(_rebuild, names=names or [], fast=fast, attached=attached))


async def _rebuild(settings: Settings, *, names: Sequence[str], fast: bool, attached: bool) -> int:
    from api.app import opened_stores
    from api.rebuild_slices import Processes
    from api.rebuilding import collect_garbage_rarely, workshop_of
    from projections.rebuild.run import cancel, rebuild

    stop = _Stop(attached)
    if not fast:
        os.nice(NICENESS)
    async with opened_stores(settings) as stores:
        chosen = named(stores.projections, names) if names else list(stores.projections)
        workshop = workshop_of(stores)
        collect_garbage_rarely()
        spread = Processes(settings, stores.dsn, [one.name for one in chosen]) if fast else None
        try:
            async with _shown(workshop, chosen, quiet=attached):
                await rebuild(workshop, chosen, spread=spread)
            await _say_what_is_parked(workshop, chosen)
        except asyncio.CancelledError:
            if stop.asked:
                _say(chosen, "stopped; the same command or a running server goes on with it", quiet=attached)
                return TERMINATED
            await cancel(workshop, chosen)
            _say(chosen, "cancelled, the read models stay as they were")
            raise
    return 0


def _say(projections: Sequence[Projection], what: str, *, quiet: bool = False) -> None:
    if not quiet:
        print(f"{', '.join(one.name for one in projections)}: {what}", file=sys.stderr)


async def _say_what_is_parked(workshop: Workshop, projections: Sequence[Projection]) -> None:
    from projections.parked import count_parked

    async with workshop.database.connection() as connection:
        parked = await count_parked(connection, [one.name for one in projections])
    for name, count in parked.items():
        print(f"{name}: {count:,} conversations parked (see `projections` and `retry`)", file=sys.stderr)


class _Stop:
    """Being told to stop without giving up: by SIGTERM, or by the end of whoever has started an attached command."""

    def __init__(self, attached: bool) -> None:
        self.asked, self._attached = False, attached
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        if attached:
            loop.add_reader(sys.stdin.fileno(), self._stop)

    def _stop(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(sys.stdin.fileno())
        self.asked = True
        if self._attached:
            loop.call_later(LONGEST_END_S, os._exit, TERMINATED)
        if self._task is not None:
            self._task.cancel()


@asynccontextmanager
async def _shown(workshop: Workshop, projections: Sequence[Projection], *, quiet: bool) -> AsyncIterator[None]:
    """Show the progress while the block runs, and how long it took when it has ended well."""
    if quiet:
        yield
        return
    from api.cli.progress_bar import ProgressBar
    from projections.rebuild.progress import rebuild_progress

    async def look() -> Progress | None:
        async with workshop.database.connection() as connection:
            return (await rebuild_progress(connection)).get(projections[0].name)

    async with ProgressBar(", ".join(one.name for one in projections), look):
        yield
