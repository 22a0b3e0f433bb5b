"""The SQL of a projection's table, made from its definition: no schema is named, no column is left implicit."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from psycopg import AsyncConnection, AsyncCursor

    from projections.projection import Key, Projection, Row

JSON = ("json", "jsonb")
BINARY = {
    "text": "text", "int": "int4", "bigint": "int8", "boolean": "bool", "float8": "float8", "uuid": "uuid",
    "timestamptz": "timestamptz", "json": "bytea", "jsonb": "bytea",
}  # fmt: skip
"""Type → what is sent for it by a binary COPY: json goes as the bytes that it is."""


class Table:
    """Reads and writes one projection's table, in whatever schema comes first on the connection's search path."""

    def __init__(self, projection: Projection) -> None:
        self.projection, name = projection, projection.name
        self.key = projection.key_columns
        self.columns = ("conversation_id", *projection.columns)
        self.types = ("uuid", *(spec.split()[0] for spec in projection.columns.values()))
        self.json_columns = {c for c, t in zip(self.columns, self.types, strict=True) if t in JSON}
        definitions = [f"{column} {spec}" for column, spec in projection.columns.items()]
        definitions = ["conversation_id uuid not null", *definitions, *projection.extra]
        self.create = f"create table {name} ({', '.join(definitions)})"
        self.indexes = [f"alter table {name} add primary key ({', '.join(self.key)})"]
        self.indexes += [f"create index on {name} {index}" for index in projection.indexes]
        still_open = ""
        if projection.open_while is not None:
            column, values = projection.open_while
            still_open = f"{column} in ({', '.join(_quoted(value) for value in sorted(values))})" if values else "false"
            if values:
                self.indexes.append(f"create index on {name} (conversation_id) where {still_open}")
        listed, key = ", ".join(self.columns), ", ".join(self.key)
        self._load = f"select {listed} from {name} where conversation_id = any(%b)"
        self._load += f" and {still_open}" if still_open else ""
        self._loads = still_open != "false"
        arrays = ", ".join(f"%b::{'text[]::' if kind in JSON else ''}{kind}[]" for kind in self.types)
        changes = ", ".join(f"{column} = excluded.{column}" for column in self.columns if column not in self.key)
        self._insert = f"insert into {name} ({listed}) select {listed} from unnest({arrays}) as changed ({listed})"
        self._upsert = f"{self._insert} on conflict ({key}) do {f'update set {changes}' if changes else 'nothing'}"
        self._as_stored = f'select {listed} from unnest({arrays}) with ordinality as given ({listed}, "N") order by "N"'
        texts = (f"{column}::text" if column in self.json_columns else column for column in self.columns)
        self._between = f"select {', '.join(texts)} from {name} where conversation_id between %b and %b"
        self._forget = f"delete from {name} where conversation_id = any(%b)"
        kinds = dict(zip(self.columns, self.types, strict=True))
        gone = ", ".join(f"%b::{kinds[column]}[]" for column in self.key)
        same = " and ".join(f"{name}.{column} = gone.{column}" for column in self.key)
        self._remove = f"delete from {name} using unnest({gone}) as gone ({key}) where {same}"
        self._copy = f"copy {name} ({listed}) from stdin (format binary)"
        self._binary = [BINARY[kind] for kind in self.types] if BINARY.keys() >= set(self.types) else None
        versions = {"json": b"", "jsonb": b"\x01"}
        self._json_at = [(at, versions[kind]) for at, kind in enumerate(self.types) if kind in JSON]

    async def start_loading(self, connection: AsyncConnection, conversations: Sequence[UUID]) -> AsyncCursor | None:
        """Ask for the rows of these conversations that later events may change; see `loaded`."""
        if not (self._loads and conversations):
            return None
        return await connection.cursor(binary=True).execute(self._load, [conversations], prepare=True)

    async def loaded(self, cursor: AsyncCursor | None) -> list[Row]:
        """Return the rows that were asked for."""
        found = await cursor.fetchall() if cursor else []
        return [dict(zip(self.columns, values, strict=True)) for values in found]

    async def upsert(self, connection: AsyncConnection, rows: Sequence[Row]) -> None:
        """Insert or replace rows, in one statement that locks them in their order."""
        await connection.execute(self._upsert, self._arrays(rows), prepare=True)

    async def remove(self, connection: AsyncConnection, keys: Iterable[tuple[Any, ...]]) -> None:
        """Delete the rows of these keys (the conversation first)."""
        await connection.execute(self._remove, list(map(list, zip(*keys, strict=True))))

    async def copy(self, connection: AsyncConnection, rows: Sequence[Row]) -> None:
        """Insert new rows, as fast as can be."""
        if self._binary is None:
            await connection.execute(self._insert, self._arrays(rows), prepare=True)
            return
        async with connection.cursor().copy(self._copy) as copy:
            copy.set_types(self._binary)
            values_of = itemgetter(*self.columns)
            for row in rows:
                values = list(values_of(row))
                for at, version in self._json_at:
                    if values[at] is not None:
                        values[at] = version + to_json(values[at])
                await copy.write_row(values)

    def be_lenient(self) -> bool:
        """Let `copy` convert values as `upsert` does, which takes longer; False if it does so already."""
        was_strict, self._binary = self._binary is not None, None
        return was_strict

    async def between(self, connection: AsyncConnection, first: UUID, last: UUID) -> list[tuple[Any, ...]]:
        """Return the values of all rows of the conversations from `first` to `last`, json as text."""
        cursor = connection.cursor(binary=True)
        return await (await cursor.execute(self._between, [first, last], prepare=True)).fetchall()

    async def as_stored(self, connection: AsyncConnection, rows: Sequence[Row]) -> list[Row]:
        """Return rows as the table would give them back, with the values of its types."""
        cursor = connection.cursor(binary=True)
        await cursor.execute(self._as_stored, self._arrays(rows), prepare=True)
        return [dict(zip(self.columns, found, strict=True)) for found in await cursor.fetchall()]

    async def forget(self, connection: AsyncConnection, conversations: Sequence[UUID]) -> None:
        """Delete all rows of these conversations."""
        await connection.execute(self._forget, [conversations])

    def key_of(self, row: Row) -> Key:
        """Return a row's key, the conversation first."""
        return tuple(row[column] for column in self.key)

    def _arrays(self, rows: Iterable[Row]) -> list[list[Any]]:
        return list(map(list, zip(*map(self.values, rows), strict=True)))

    def values(self, row: Row) -> list[Any]:
        """Return a row's values in the order of `columns`, json as text."""
        return [
            to_json(row[column]).decode() if column in self.json_columns and row[column] is not None else row[column]
            for column in self.columns
        ]


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
