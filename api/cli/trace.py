"""`trace`: why an event came about, and what came of it."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.failures import CommandFailed
from api.cli.job import Job
from api.cli.opened_history import Source, opened_history

if TYPE_CHECKING:
    from uuid import UUID

    from rich.text import Text

    from api.debugging.trace import Trace, TraceEvent
    from infra.settings import Settings

MOST_CHARACTERS = 100
"""Of what an event says; `events` shows it all."""

AsJson = Annotated[bool, typer.Option("--json", help="The trace as JSON, with every time.")]


Event = Annotated[
    str, typer.Argument(metavar="EVENT_ID|SEQ", help="The event's id, or its number.", show_default=False)
]


def trace(source: Source, event: Event, as_json: AsJson = False) -> Job:
    """Show the causes of an event up to the user's message, and its effects down to the turn's end.

    Each event says after what wait it came: for the turn before (queue), a worker (wake),
    the model, a tool, a person (human), a client; other is what a worker does besides: it
    loads the model library for its first call, runs hooks, tries again, records. The path
    that took longest is marked by a star; it may go through the calls beside an event's own.
    """
    from api.debugging.turns import event_named

    try:
        wanted = event_named(event)
    except ValueError:
        raise typer.BadParameter("an event is named by its id or its number", param_hint="EVENT_ID|SEQ") from None
    return Job(partial(_trace, source=source, wanted=wanted, as_json=as_json))


async def _trace(settings: Settings, *, source: str, wanted: UUID | int, as_json: bool) -> int:
    from api.debugging.trace import trace as trace_event
    from api.debugging.turns import turns_around
    from projections.event import Event as LoggedEvent

    async with opened_history(source, settings) as history:
        await history.last_seq()
        stored = await turns_around(history.log, history.conversation_id, wanted)
    found = trace_event([LoggedEvent(event, history.conversation_id) for event in stored], wanted)
    if found is None:
        raise CommandFailed(f"{source} has no event {wanted}; `rejoinder replay` lists them")
    if as_json:
        from api.answers import json_bytes

        sys.stdout.buffer.write(json_bytes(found) + b"\n")
    else:
        _draw(found)
    return 0


def _draw(found: Trace) -> None:
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    console = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else 500)
    forest = Tree("", hide_root=True)
    drawn: dict[int | None, Tree] = {None: forest}
    for event in found.events:
        drawn[event.seq] = drawn[event.parent].add(_line(event))
    waits = " · ".join(f"{kind} {_ms(took)}" for kind, took in found.times.items())
    console.print(forest)
    console.print(Text(f"* the slowest path: {_ms(found.total_ms)}" + (f" = {waits}" if waits else ""), style="dim"))


def _line(event: TraceEvent) -> Text:
    from rich.text import Text

    from api.event_text import COLOURS
    from api.printable import shortened

    asked = event.role == "event"
    line = Text(overflow="ellipsis", no_wrap=True)
    line.append("* " if event.slowest else "  ", style="bold red")
    line.append(f"{event.seq} ", style="dim")
    line.append(event.type, style="reverse" if asked else COLOURS.get(event.type, "dim"))
    waits = ", ".join(f"{kind} {_ms(took)}" for kind, took in event.waits.items())
    if event.parent is None:
        waits = f"{event.occurred_at:%H:%M:%S}"
    line.append(f" ({waits})" if waits else "", style="bold" if event.slowest else "dim")
    line.append(f" {shortened(event.text, MOST_CHARACTERS)}" if event.text else "")
    line.append("  <- this event" if asked else "", style="bold")
    return line


def _ms(took: float) -> str:
    """Write a time as people read it."""
    return f"{took:.1f} ms" if took < 10 else f"{took:,.0f} ms" if took < 10_000 else f"{took / 1000:,.1f} s"
