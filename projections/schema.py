"""Create the tables of projections that a database does not have yet, and record their versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projections.tables import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import AsyncConnection

    from projections.projection import Projection

LOCK = "select pg_advisory_xact_lock(hashtextextended('rejoinder projections', 0))"
NEW = "insert into projections (name, version, status) values (%s, %s, 'new')"


async def ensure_schema(connection: AsyncConnection, projections: Sequence[Projection]) -> None:
    """Create what is missing, in one transaction; processes that start together wait for each other.

    A table of another version is left as it is: see `projections.versions`.
    """
    async with connection.transaction():
        await connection.execute(LOCK)
        there = {name for (name,) in await (await connection.execute("select name from projections")).fetchall()}
        for projection in projections:
            if projection.name not in there:
                table = Table(projection)
                for statement in (table.create, *table.indexes):
                    await connection.execute(statement)
                await connection.execute(NEW, [projection.name, projection.version])
