"""`replay` and `diff`: a conversation event by event, as it was at one of them, and between two."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.failures import NO, WRONG_USAGE, CommandFailed
from api.cli.job import Job
from api.cli.opened_history import Source, opened_history

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import BaseModel

    from api.debugging.history import History
    from infra.settings import Settings

At = Annotated[int | None, typer.Option("--at", metavar="SEQ", min=0, help="As it was right after this event.")]
Stepping = Annotated[bool, typer.Option("--step", help="Step through it on the screen, from --at or the beginning.")]
AsJson = Annotated[bool, typer.Option("--json", help="As the API says it; without --at, one step a line.")]
Against = Annotated[
    str | None,
    typer.Option("--against", metavar="DIR|REV", help="Fold it by another version of this code too, and compare."),
]
From = Annotated[int, typer.Argument(metavar="A", min=0, help="The event to begin after; 0: none.", show_default=False)]
To = Annotated[int, typer.Argument(metavar="B", min=0, help="The event to end with.", show_default=False)]
PatchAsJson = Annotated[bool, typer.Option("--json", help="As the API says it.")]


def replay(
    source: Source, at: At = None, step: Stepping = False, as_json: AsJson = False, against: Against = None
) -> Job:
    """Look at a conversation as it was at any of its events; nothing is run, and nothing changes.

    On a terminal this steps through it; otherwise each event is printed with the
    patch that it made and with what the log then owed. With --against the exit code is
    1 if the two versions differ.
    """
    if against is not None:
        if step or at is not None:
            raise typer.BadParameter("not together with --at or --step", param_hint="--against")
        return Job(partial(_against, source=source, version=against, as_json=as_json))
    if step and as_json:
        raise typer.BadParameter("not together with --step", param_hint="--json")
    screen = all(one.isatty() for one in (sys.stdin, sys.stdout, sys.stderr)) and os.environ.get("TERM") != "dumb"
    if step and not screen:
        raise typer.BadParameter("needs a terminal", param_hint="--step")
    stepping = step or (screen and at is None and not as_json)
    return Job(partial(_replay, source=source, at=at, stepping=stepping, as_json=as_json))


def diff(source: Source, a: From, b: To, as_json: PatchAsJson = False) -> Job:
    """Show what changed between two events, as a JSON Patch: + added, - removed, ~ replaced."""
    return Job(partial(_diff, source=source, a=a, b=b, as_json=as_json))


async def _replay(settings: Settings, *, source: str, at: int | None, stepping: bool, as_json: bool) -> int:
    async with opened_history(source, settings) as history:
        if stepping:
            from api.cli.stepper import Stepper  # brings Textual with it

            await Stepper(history, await history.last_seq(), settings.model, at).run_async()
        elif at is None:
            await _list(history, as_json=as_json)
        else:
            from api.cli.replay_text import moment_lines
            from api.debugging.moment import moment

            then = await moment(history, at, default_model=settings.model)
            _print_json(then) if as_json else _print(moment_lines(then))
    return 0


async def _against(settings: Settings, *, source: str, version: str, as_json: bool) -> int:
    from api.cli.against_text import against_lines
    from api.debugging.against import against
    from api.debugging.checkouts import NoCheckout

    async with opened_history(source, settings) as history:
        try:
            found = await against(history, version)
        except NoCheckout as error:
            raise CommandFailed(str(error), WRONG_USAGE) from None
    _print_json(found) if as_json else _print(against_lines(found))
    return NO if found.differs else 0


async def _list(history: History, *, as_json: bool) -> None:
    from api.cli.replay_text import owed_text, patch_lines, step_line
    from api.debugging.steps import Steps

    await history.last_seq()
    async for step in (await Steps.after(history, 0)).all():
        if as_json:
            _print_json(step)
        else:
            _print([step_line(step), *(f"       {line}" for line in patch_lines(step.patch))])
            _print([f"       owes: {owed_text(step.owes, amid=step.amid)}"])


async def _diff(settings: Settings, *, source: str, a: int, b: int, as_json: bool) -> int:
    from api.cli.replay_text import patch_lines
    from api.debugging.steps import difference

    async with opened_history(source, settings) as history:
        found = await difference(history, a, b)
    _print_json(found) if as_json else _print(patch_lines(found.patch))
    return 0


def _print(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _print_json(value: BaseModel) -> None:
    from api.answers import json_bytes

    sys.stdout.buffer.write(json_bytes(value) + b"\n")
