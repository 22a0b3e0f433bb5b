"""`verify`: fold the log again and compare with the read models."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.failures import NO, CommandFailed
from api.cli.job import Job
from api.cli.projection_names import named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.transfer.checking import Findings
    from infra.settings import Settings
    from projections.verify import Verdict

Names = Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Read models; all, if none is named.")]

File = Annotated[
    Path | None,
    typer.Option("--from", metavar="FILE", exists=True, dir_okay=False, help="Check what `export` wrote by itself."),
]


def verify(names: Names = None, file: File = None) -> Job:
    """Fold the whole log again and compare the rows with those that there are.

    It runs while the system works. Every difference names table, key, column
    and both values. The exit code is 1 if there is any, if parked conversations
    had to be left out, and if a read model has not begun to follow the log.

    With --from neither server nor database is needed: each log of the file has to be sound
    (turns, calls and results pair up, decisions are in their places), and each read model has
    to make the same of it however it is cut into pieces.
    """
    if file is not None:
        return Job(partial(_verify_file, path=file, names=names or []))
    return Job(partial(_verify, names=names or []))


async def _verify(settings: Settings, *, names: Sequence[str]) -> int:
    from api.app import opened_stores
    from api.cli.pace import Pace
    from api.cli.progress_bar import ProgressBar
    from api.rebuilding import collect_garbage_rarely, workshop_of
    from projections.verify import verify

    pace = Pace()
    async with opened_stores(settings) as stores:
        chosen = named(stores.projections, names) if names else list(stores.projections)
        workshop = workshop_of(stores)
        collect_garbage_rarely()
        try:
            async with workshop.open_log(None) as log, ProgressBar("verify", pace.look):
                verdicts = await verify(workshop.database, log, chosen, pace.note)
        except asyncio.CancelledError:
            print("verify: stopped before its end, nothing is changed", file=sys.stderr)
            raise
    for verdict in verdicts:
        _show(verdict)
    return NO if any(verdict.differences or verdict.parked or verdict.unbuilt for verdict in verdicts) else 0


def _show(verdict: Verdict) -> None:
    from api.printable import on_one_line

    name = verdict.projection.name
    for difference in verdict.shown:
        print(on_one_line(str(difference)))
    if verdict.differences > len(verdict.shown):
        print(f"{name}: … and {verdict.differences - len(verdict.shown):,} more")
    agreed = "not built yet (`serve` or `rebuild` does that)" if verdict.unbuilt else "as the log says"
    found = f"{verdict.differences:,} differences" if verdict.differences else agreed
    left_out = f"; parked and left out: {len(verdict.parked):,} (see `retry`)" if verdict.parked else ""
    print(f"{name}: {verdict.rows:,} rows, {found}{left_out}")


async def _verify_file(settings: Settings, *, path: Path, names: Sequence[str]) -> int:
    from api.cli.pace import Pace
    from api.cli.progress_bar import ProgressBar
    from api.transfer.checking import check
    from api.transfer.reader import ExportError, read_total
    from infra.projection_loader import load_projections

    projections = load_projections(settings.projections)
    pace = Pace()
    try:
        total = read_total(path)
        async with ProgressBar("verify", pace.look):
            chosen = named(projections, names) if names else projections
            found = await asyncio.to_thread(check, path, chosen, pace.noting(total))
    except ExportError as error:
        raise CommandFailed(f"{path}: {error}") from None
    for findings in found:
        _show_findings(findings)
    return NO if any(findings.count for findings in found) else 0


def _show_findings(findings: Findings) -> None:
    from api.printable import on_one_line

    for fault in findings.shown:
        print(on_one_line(fault))
    if findings.count > len(findings.shown):
        print(f"{findings.about}: … and {findings.count - len(findings.shown):,} more")
    said = f"{findings.count:,} faults" if findings.count else "sound"
    print(f"{findings.about}: {findings.looked_at:,} {findings.what}, {said}")
