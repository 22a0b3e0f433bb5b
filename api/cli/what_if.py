"""`what-if`: what a conversation would be with another log."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.failures import WRONG_USAGE, CommandFailed
from api.cli.job import Job
from api.cli.opened_history import Source, opened_history
from api.cli.replay_text import context_head, context_lines, owed_text, patch_lines, shown_lines
from api.printable import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from api.debugging.changes import Changes
    from api.debugging.what_if import WhatIf
    from api.errors import FieldError
    from infra.settings import Settings

MOST_LINES = 12
"""Of what the model or people would see: the newest."""
MOST_CHARACTERS = 110

Drop = Annotated[list[int] | None, typer.Option("--drop", metavar="SEQ", help="Leave this event out.")]
Replace = Annotated[
    list[str] | None, typer.Option("--replace", metavar="SEQ=JSON", help="Give fields of its data other values.")
]
Append = Annotated[
    list[str] | None,
    typer.Option(
        "--append", metavar="FILE|JSON", help="Add an event, or a file of them, one a line, as `events --json`."
    ),
]
At = Annotated[int | None, typer.Option("--at", metavar="SEQ", help="Look right after this event, not at the end.")]
AsJson = Annotated[bool, typer.Option("--json", help="The whole answer, with JSON Patches against what is.")]


def what_if(
    source: Source,
    drop: Drop = None,
    replace: Replace = None,
    append: Append = None,
    at: At = None,
    as_json: AsJson = False,
) -> Job:
    """Show what a conversation would be had events not come, said something else, or others come.

    It is folded in memory: nothing is recorded, and nothing is run. Events that
    can no longer follow are left out and named.
    """
    asked: dict[str, Any] = {"drop": drop or [], "replace": dict(map(_replaced, replace or ()))}
    asked |= {"append": [event for one in append or () for event in _appended(one)], "at": at}
    if not (asked["drop"] or asked["replace"] or asked["append"]):
        raise typer.BadParameter("no change given", param_hint="--drop, --replace, --append")
    return Job(partial(_what_if, source=source, asked=asked, as_json=as_json))


def _replaced(option: str) -> tuple[str, Any]:
    seq, equals, data = option.partition("=")
    if not (equals and seq.strip().isdecimal()):
        raise typer.BadParameter('write it as SEQ=JSON, as in 9=\'{"status": "error"}\'', param_hint="--replace")
    return seq.strip(), _json(data, "--replace")


def _appended(option: str) -> list[Any]:
    if option.lstrip().startswith("{"):
        return [_json(option, "--append")]
    try:
        lines = Path(option).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(
            f"it is no JSON, and no file that can be read: {error}", param_hint="--append"
        ) from error
    return [_json(line, "--append") for line in lines if line.strip()]


def _json(text: str, option: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"it is not JSON: {error}", param_hint=option) from None


async def _what_if(settings: Settings, *, source: str, asked: dict[str, Any], as_json: bool) -> int:
    from api.debugging.what_if import what_if as ask
    from api.errors import FieldError, InvalidRequest
    from domain.errors import InvalidInput

    changes = _changes(asked)
    async with opened_history(source, settings) as history:
        try:
            found = await ask(history, changes, default_model=settings.model)
        except InvalidRequest as error:
            raise CommandFailed(_faults(error.errors, asked)) from error
        except InvalidInput as error:
            raise CommandFailed(_faults([FieldError(*fault) for fault in error.faults], asked)) from error
    if as_json:
        from api.answers import json_bytes

        sys.stdout.buffer.write(json_bytes(found) + b"\n")
    else:
        _print(found)
    return 0


def _changes(asked: dict[str, Any]) -> Changes:
    from pydantic import ValidationError

    from api.debugging.changes import Changes
    from api.field_errors import field_errors
    from domain.text import clean
    from domain.wire import dumps

    given = clean(asked)
    try:
        return Changes.model_validate_json(dumps(given), strict=True)
    except ValidationError as error:
        raise CommandFailed(_faults(field_errors(error, given), asked), WRONG_USAGE) from None


def _faults(faults: Sequence[FieldError], asked: Mapping[str, Any]) -> str:
    """Name the first faults by their options, and by the event or the place in the list that was given there."""
    return "; ".join(f"--{_option(fault.field, asked)}: {fault.message}" for fault in faults[:3])


def _option(field: str, asked: Mapping[str, Any]) -> str:
    option, _, within = field.partition(".")
    if option == "drop":
        within = str(asked["drop"][int(within)])
    elif option == "append":
        number, _, within = within.partition(".")
        within = f"{int(number) + 1}, {within}" if within else str(int(number) + 1)
    return f"{option} {within}" if within else option


def _print(found: WhatIf) -> None:
    for line in _lines(found):
        print(line)


def _lines(found: WhatIf) -> Iterator[str]:
    yield f"really:  after event {found.reality.seq} the log owes {owed_text(found.reality.owes)}"
    yield f"what if: after event {found.seq} the log would owe {owed_text(found.owes)}"
    for title, doubts in (("can no longer follow", found.impossible), ("might have been otherwise", found.uncertain)):
        if doubts:
            yield f"{title}:"
        yield from (f"{doubt.seq:>5}  {doubt.type:<20}  {doubt.reason}" for doubt in doubts)
    yield from _some(f"the model would see ({context_head(found.working_set)})", list(context_lines(found.working_set)))
    yield from _some("people would see", list(shown_lines(found.messages)))
    yield from _some("the state would differ by", list(patch_lines(found.patch)))


def _some(title: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield the newest of these lines."""
    yield f"{title}:" if lines else f"{title}: nothing"
    if len(lines) > MOST_LINES:
        yield f"  … {len(lines) - MOST_LINES:,} before"
    yield from (f"  {shortened(line, MOST_CHARACTERS)}" for line in lines[-MOST_LINES:])
