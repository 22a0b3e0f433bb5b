"""Rows of read models as JSON's types: what queries answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from psycopg.rows import dict_row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from psycopg import AsyncConnection


async def fetch(connection: AsyncConnection, query: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a query, ids as text and times in ISO 8601, UTC."""
    async with connection.cursor(row_factory=dict_row) as cursor:
        found = await (await cursor.execute(query, values)).fetchall()
    return [{name: _plain(value) for name, value in row.items()} for row in found]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return str(value) if isinstance(value, UUID) else value
