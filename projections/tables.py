"""The SQL of a projection's table, made from its definition: no schema is named, no column is left implicit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from psycopg import AsyncConnection, AsyncCursor

    from projections.projection import Projection, Row

JSON = ("json", "jsonb")


class Table:
    """Reads and writes one projection's table, in whatever schema comes first on the connection's search path."""

    def __init__(self, projection: Projection) -> None:
        self._name = name = projection.name
        self.key = projection.key_columns
        self.columns = ("conversation_id", *projection.columns)
        self.types = ("uuid", *(spec.split()[0] for spec in projection.columns.values()))
        self._json = {c for c, t in zip(self.columns, self.types, strict=True) if t in JSON}
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
        self._upsert = f"insert into {name} ({listed}) select {listed} from unnest({arrays}) as changed ({listed}) "
        self._upsert += f"on conflict ({key}) do update set {changes}" if changes else "on conflict do nothing"
        self._forget = f"delete from {name} where conversation_id = any(%b)"
        self._remove = f"delete from {name} where ({key}) = ({', '.join(['%s'] * len(self.key))})"

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
        values = map(self.values, rows)
        await connection.execute(self._upsert, list(map(list, zip(*values, strict=True))), prepare=True)

    async def remove(self, connection: AsyncConnection, keys: Iterable[tuple[Any, ...]]) -> None:
        """Delete the rows of these keys (the conversation first)."""
        async with connection.cursor() as cursor:
            await cursor.executemany(self._remove, list(keys))

    async def forget(self, connection: AsyncConnection, conversations: Sequence[UUID]) -> None:
        """Delete all rows of these conversations."""
        await connection.execute(self._forget, [conversations])

    def values(self, row: Row) -> list[Any]:
        """Return a row's values in the order of `columns`, json as text."""
        return [
            to_json(row[column]).decode() if column in self._json and row[column] is not None else row[column]
            for column in self.columns
        ]


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
