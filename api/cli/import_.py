"""`import`: conversations of a file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.failures import NO, CommandFailed
from api.cli.job import Job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.transfer.examining import Arrival
    from infra.settings import Settings

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", exists=True, dir_okay=False, readable=True, help="What `export` wrote.", show_default=False
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Take in open work too: workers go on with it at once.")]

MOST_SHOWN = 50


def import_file(file: File, resume: Resume = False) -> Job:
    """Take in the conversations of an exported file, with their ids, numbers, times and summaries.

    The whole file is checked before anything is written: one that does not fit is refused,
    and the line is named. What is there already is left alone, so an import that was broken off
    is finished by running it again. Nothing runs because of it: a file in which
    anything is open is refused, unless `--resume` says that it may go on here.
    """
    return Job(partial(_import, path=file, resume=resume))


async def _import(settings: Settings, *, path: Path, resume: bool) -> int:
    from api.app import opened_stores
    from api.cli.pace import Pace
    from api.cli.progress_bar import ProgressBar
    from api.transfer.examining import examine
    from api.transfer.importing import append_missing
    from api.transfer.reader import ExportError, read_total
    from infra.import_holds import ImportHolds

    try:
        total = read_total(path)
        async with opened_stores(settings) as stores:
            checked, appended = Pace(), Pace()
            async with ProgressBar("check", checked.look):
                arrivals = await examine(path, stores.event_store, checked.noting(total))
            missing = sum(arrival.missing for arrival in arrivals)
            if _show_open(arrivals) and not resume:
                print("nothing was imported: with --resume all is, and workers go on with this")
                return NO
            async with ProgressBar("import", appended.look):
                holds = ImportHolds(stores.database)
                await append_missing(path, stores.event_store, holds, arrivals, appended.noting(missing))
    except ExportError as error:
        raise CommandFailed(f"{path}: {error}") from error
    new = sum(arrival.missing > 0 for arrival in arrivals)
    hint = "; `serve` brings the read models up to them" if missing else ""
    print(f"{missing:,} events of {new:,} conversations imported; {len(arrivals) - new:,} were there already{hint}")
    return 0


def _show_open(arrivals: Sequence[Arrival]) -> int:
    """Print what workers would do, and return in how many conversations."""
    from api.printable import on_one_line

    found = [arrival for arrival in arrivals if arrival.open_work]
    for arrival in found[:MOST_SHOWN]:
        print(on_one_line(f"{arrival.conversation_id}: {'; '.join(arrival.open_work)}"))
    if len(found) > MOST_SHOWN:
        print(f"… and {len(found) - MOST_SHOWN:,} more conversations")
    return len(found)
