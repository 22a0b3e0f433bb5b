"""Why something could not be folded, in words that may be kept: nothing of what people or models said is repeated."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from projections.event import Event
    from projections.projection import Row

LONGEST = 300
OTHER_FORM = ("42703", "42804")
"""SQLSTATEs of columns that are not in the table, or of another type there."""
GROW = ": when columns of a projection change, its version has to grow"
_WORD = re.compile(r"\w{3,}")


class SaidAlready(Exception):
    """An error whose message is a reason."""


def reason_of(error: Exception, said: Iterable[Any] | None = None) -> str:
    """Name an error's class, place and first line, without its words that occur in `said`, any JSON values.

    Unless it is known what was `said`, what the database says is left out.
    """
    if isinstance(error, SaidAlready):
        return str(error)
    line, place = str(error).partition("\n")[0], _place(error)
    if said is None and isinstance(error, psycopg.Error):
        line = ""
    elif said is not None:
        heard = "\n".join(_texts(list(said))).casefold()
        line = _WORD.sub(lambda word: "…" if word[0].casefold() in heard else word[0], line[: 10 * LONGEST])
    named = ": ".join(filter(None, (type(error).__name__, line)))[:LONGEST]
    hint = GROW if isinstance(error, psycopg.Error) and error.sqlstate in OTHER_FORM else ""
    return f"{named} ({place}){hint}" if place else named


def _place(error: Exception) -> str:
    if isinstance(error, psycopg.Error) and error.sqlstate:
        column = error.diag.column_name or error.diag.constraint_name
        return f"{error.sqlstate} {'.'.join(filter(None, (error.diag.table_name, column)))}".rstrip()
    frames = extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def said_in(events: Iterable[Event], rows: Sequence[Row]) -> Iterator[Any]:
    """Yield what events and rows hold, as far as it can be read."""
    yield from rows
    for event in events:
        with suppress(ValueError, KeyError):
            yield event.data


def _texts(value: Any) -> Iterator[str]:
    """Go through the texts of a JSON value; names of fields are ours."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(one)
