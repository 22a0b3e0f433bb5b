"""What differs between the rows that the log makes and those that a table has, said for people."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from psycopg import AsyncConnection

    from projections.projection import Key, Row
    from projections.rebuild.folding import FoldError
    from projections.tables import Table

MOST_CHARACTERS = 60
"""Of a value: enough to know it again, too little to read what people wrote."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One column of one row, by its key; `column` None: the row is only on one side, or cannot be made."""

    projection: str
    key: Mapping[str, str]
    column: str | None
    log: str
    table: str

    def __str__(self) -> str:
        key = ", ".join(f"{column}={value}" for column, value in self.key.items())
        column = f".{self.column}" if self.column else ""
        return f"{self.projection}[{key}]{column}: the log says {self.log}, the table {self.table}"


def unfoldable(error: FoldError) -> Difference:
    """Make the difference of a conversation that cannot be folded."""
    return Difference(error.name, {"conversation_id": str(error.conversation_id)}, None, str(error), "has rows of it")


async def compare(
    connection: AsyncConnection,
    table: Table,
    expected: Mapping[Key, Row],
    actual: Sequence[tuple[Any, ...]],
) -> list[Difference]:
    """Compare rows by their keys (conversation first) with values of the table's columns, json as text.

    What seems to differ is first given the form that the table would give it.
    """
    missing = dict(expected)
    suspects: list[tuple[Row, Row]] = []
    differences: list[Difference] = []
    for values in actual:
        row = dict(zip(table.columns, values, strict=True))
        wanted = missing.pop(table.key_of(row), None)
        if wanted is None:
            row = _read(table, row)
            if not _is_void(table, row):
                differences.append(_one_sided(table, row, "no such row", "has one"))
        elif table.values(wanted) != list(values):
            suspects.append((wanted, _read(table, row)))
    if suspects:
        as_stored = await table.as_stored(connection, [wanted for wanted, _ in suspects])
        for wanted, (_, row) in zip(as_stored, suspects, strict=True):
            differences += _columns(table, wanted, row)
    return differences + [_one_sided(table, row, "a row", "has none") for row in missing.values()]


def _columns(table: Table, wanted: Row, row: Row) -> list[Difference]:
    if _is_void(table, row):
        return [_one_sided(table, wanted, "a row", "has one that is as good as none")]
    return [
        Difference(table.projection.name, _key(table, row), column, _shown(wanted[column]), _shown(row[column]))
        for column in table.columns
        if wanted[column] != row[column]
    ]


def _one_sided(table: Table, row: Row, log: str, there: str) -> Difference:
    return Difference(table.projection.name, _key(table, row), None, log, there)


def _key(table: Table, row: Row) -> dict[str, str]:
    return {column: _shown(row[column]).strip('"') for column in table.key}


def _is_void(table: Table, row: Row) -> bool:
    return table.projection.is_void is not None and table.projection.is_void(row)


def _read(table: Table, row: Row) -> Row:
    """Return a row with its json parsed."""
    return {
        column: from_json(value) if column in table.json_columns and value is not None else value
        for column, value in row.items()
    }


def _shown(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    text = "null" if value is None else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"
