"""`projections`: how the read models stand, and removing one that no code has any more."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.failures import WRONG_USAGE, CommandFailed
from api.cli.job import Job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.routes.operations import ProjectionItem
    from api.routes.rebuilds import RebuildItem
    from infra.settings import Settings

COLOURS = {"running": "green", "new": "yellow", "waiting": "yellow"}
"""Of a status; any other one wants attention."""

AsJson = Annotated[bool, typer.Option("--json", help="As GET /v1/projections has it.")]


Drop = Annotated[str | None, typer.Option("--drop", metavar="NAME", help="Remove one that no code has any more.")]


def projections(as_json: AsJson = False, dropped: Drop = None) -> Job:
    """Show each read model's position, its lag behind the log, and what is parked."""
    return Job(partial(_projections, as_json=as_json) if dropped is None else partial(_drop, name=dropped))


async def _drop(settings: Settings, *, name: str) -> int:
    from api.app import opened_stores
    from projections.dropping import StillLed, drop

    async with opened_stores(settings) as stores:
        if name in (one.name for one in stores.projections):
            raise CommandFailed(
                f"the code has the read model {name}: take one of your own out of REJOINDER_PROJECTIONS"
            )
        async with stores.database.connection() as connection:
            try:
                dropped = await drop(connection, name)
            except StillLed as error:
                raise CommandFailed(str(error)) from error
    if not dropped:
        raise CommandFailed(f"there is no read model {name!r}; see `rejoinder projections`", WRONG_USAGE)
    print(f"{name} is dropped")
    return 0


async def _projections(settings: Settings, *, as_json: bool) -> int:
    from api.app import opened_stores
    from api.routes.operations import Projections
    from infra.clock import Clock
    from projections.status import projection_statuses

    async with opened_stores(settings) as stores, Clock(stores.database) as clock:
        async with stores.database.connection() as connection:
            found = await projection_statuses(connection, stores.event_store, now=clock.now())
        standing = Projections.model_validate({"items": found})
    if as_json:
        print(standing.model_dump_json())
    else:
        _show(standing.items)
    return 0


def _show(items: Sequence[ProjectionItem]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 200
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("name", "version", "generation", "status", "position", "lag: events", "seconds", "parked"):
        table.add_column(column, justify="left" if column in ("name", "status") else "right")
    for item in items:
        table.add_row(
            item.name,
            str(item.version),
            str(item.generation),
            Text(item.status, style=COLOURS.get(item.status, "red")),
            str(item.position),
            "?" if item.lag_events is None else str(item.lag_events),
            "?" if item.lag_seconds is None else f"{item.lag_seconds:.1f}",
            str(item.parked),
        )
    console.print(table)
    for item in items:
        if item.error:
            console.print(f"{item.name}: {item.error}", style="red")
        if item.rebuild:
            console.print(f"{item.name} is being rebuilt: {_progress(item.rebuild)}")


def _progress(rebuild: RebuildItem) -> str:
    if rebuild.error:
        return f"it stopped, and is tried again: {rebuild.error}"
    if not rebuild.rate:
        return f"{rebuild.done:,} of {rebuild.total:,} events, waiting for a server or `rejoinder rebuild`"
    left = "" if rebuild.eta_s is None else f", {rebuild.eta_s:.0f} s left"
    return f"{rebuild.done:,} of {rebuild.total:,} events, {rebuild.rate:,.0f}/s{left}"
