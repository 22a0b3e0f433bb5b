"""`verify`: fold the log again and compare with the read models."""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.failures import NO
from api.cli.job import Job
from api.cli.projection_names import named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infra.settings import Settings
    from projections.rebuild.progress import Progress
    from projections.verify import Verdict

Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME…]", help="Read models; all, if none is named.")]


def verify(names: Names = None) -> Job:
    """Fold the whole log again and compare the rows with those that there are.

    It runs while the system works. Every difference names table, key, column
    and both values. The exit code is 1 if there is any, and if parked conversations
    had to be left out.
    """
    return Job(partial(_verify, names=names or []))


async def _verify(settings: Settings, *, names: Sequence[str]) -> int:
    from api.app import opened_stores
    from api.cli.progress_bar import ProgressBar
    from api.rebuilding import collect_garbage_rarely, workshop_of
    from projections.rebuild.progress import Progress
    from projections.verify import verify

    standing: Progress | None = None
    began = time.monotonic()

    def note(done: int, total: int) -> None:
        nonlocal standing
        rate = done / (time.monotonic() - began)
        standing = Progress(done, total, rate, (total - done) / rate)

    async def look() -> Progress | None:
        return standing

    async with opened_stores(settings) as stores:
        chosen = named(stores.projections, names) if names else list(stores.projections)
        workshop = workshop_of(stores)
        collect_garbage_rarely()
        try:
            async with workshop.open_log(None) as log, ProgressBar("verify", look):
                verdicts = await verify(workshop.database, log, chosen, note)
        except asyncio.CancelledError:
            print("verify: stopped before its end, nothing is changed", file=sys.stderr)
            raise
    for verdict in verdicts:
        _show(verdict)
    return NO if any(verdict.differences or verdict.parked for verdict in verdicts) else 0


def _show(verdict: Verdict) -> None:
    from api.cli.printable import on_one_line

    name = verdict.projection.name
    for difference in verdict.shown:
        print(on_one_line(str(difference)))
    if verdict.differences > len(verdict.shown):
        print(f"{name}: … and {verdict.differences - len(verdict.shown):,} more")
    found = f"{verdict.differences:,} differences" if verdict.differences else "as the log says"
    left_out = f"; parked and left out: {len(verdict.parked):,} (see `retry`)" if verdict.parked else ""
    print(f"{name}: {verdict.rows:,} rows, {found}{left_out}")
