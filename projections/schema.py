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


class ProjectionMismatch(Exception):
    """The database holds a read model of another version than this code's; the message says what to do."""


async def ensure_schema(connection: AsyncConnection, projections: Sequence[Projection]) -> None:
    """Create what is missing, in one transaction; processes that start together wait for each other.

    Raises `ProjectionMismatch` for a table of another version.
    """
    async with connection.transaction():
        await connection.execute(LOCK)
        cursor = await connection.execute("select name, version from projections")
        versions: dict[str, int] = dict(await cursor.fetchall())
        for projection in projections:
            stored = versions.get(projection.name)
            if stored is None:
                table = Table(projection)
                for statement in (table.create, *table.indexes):
                    await connection.execute(statement)
                await connection.execute(NEW, [projection.name, projection.version])
            elif stored != projection.version:
                raise ProjectionMismatch(
                    f"the read model {projection.name} in the database is of version {stored}, this code's is "
                    f"{projection.version}: run the Rejoinder that wrote it, or use an empty database"
                )
