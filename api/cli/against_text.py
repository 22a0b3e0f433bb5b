"""What two versions of the code make of one log, in lines for people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from api.cli.replay_text import owed_text, patch_lines
from api.printable import on_one_line, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.debugging.comparison import Comparison, FirstDifference, RowDifference

MOST_CHARACTERS = 60
"""Of a value."""


def against_lines(found: Comparison) -> Iterator[str]:
    """Yield what differs, and what only one version knows."""
    verdict = "and they differ" if found.differs else "and nothing differs"
    yield f"{found.events:,} events were folded by this code and by {found.version}, {verdict}"
    if found.first_difference:
        yield from _first_lines(found.first_difference)
    if found.rows:
        yield f"rows that differ: {len({(row.projection, str(row.key)) for row in found.rows}):,}"
        yield from (f"  {on_one_line(_row(row))}" for row in found.rows)
    for side, names in (("only this code", found.only_here), (f"only {found.version}", found.only_there)):
        if names:
            yield f"{side} knows: {', '.join(names)}"


def _first_lines(first: FirstDifference) -> Iterator[str]:
    yield f"the first difference is after event {first.seq}, {first.type}"
    for side, error in (("this code", first.error_here), ("the other", first.error_there)):
        if error:
            yield f"  {side} cannot take it: {on_one_line(error)}"
    yield from (f"  {line}" for line in patch_lines(first.patch))
    if first.owes_here != first.owes_there and first.owes_here is not None and first.owes_there is not None:
        yield f"  owes here: {owed_text(first.owes_here)}, there: {owed_text(first.owes_there)}"


def _row(row: RowDifference) -> str:
    key = ", ".join(f"{name}={value}" for name, value in row.key.items())
    if row.column is not None:
        return f"{row.projection}[{key}].{row.column}: here {_value(row.here)}, there {_value(row.there)}"
    if error := (row.here or row.there or {}).get("error"):
        return f"{row.projection} cannot be folded {'there' if row.here is None else 'here'}: {error}"
    return f"{row.projection}[{key}]: only {'there' if row.here is None else 'here'}"


def _value(value: Any) -> str:
    return shortened(json.dumps(value, ensure_ascii=False), MOST_CHARACTERS)
