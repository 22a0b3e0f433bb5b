"""The schema in which read models are made anew: tables of the same names as the live ones."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, LiteralString

from psycopg import sql

from projections.advance import Led

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from uuid import UUID

    from psycopg import AsyncConnection

    from projections.projection import Projection

CHECKPOINTS = ("projections", "parked", "skipped")
"""What a projector keeps beside the read models: a shadow has its own, so that the same code moves it."""
TO_OURSELVES = "autovacuum_enabled = false, toast.autovacuum_enabled = false"
"""A vacuum of a new table could take as long as it likes, and hold the swap up."""
TO_OTHERS = "autovacuum_enabled, toast.autovacuum_enabled"
EPOCH = 1
PREFIX = "rejoinder_rebuild_"

# Nobody waits for these tables, and a crash of the server takes rows and progress together.
SETTINGS: LiteralString = """
select set_config('search_path', %s, true), set_config('synchronous_commit', 'off', true),
    set_config('idle_in_transaction_session_timeout', '5min', true)
"""
BEGIN: LiteralString = "insert into projections (name, version, position, epoch) values (%s, %s, %s, %s)"


@dataclass(frozen=True, slots=True)
class Shadow:
    """The schema of one rebuild, beside the schema `live`; its name is not to be chosen by others."""

    schema: str
    live: str

    @classmethod
    async def of(cls, connection: AsyncConnection, rebuild: UUID) -> Shadow:
        """Return the shadow of a rebuild; it need not exist."""
        row = await (await connection.execute("select current_schema()")).fetchone()
        return cls(f"{PREFIX}{rebuild.hex}", row[0] if row else "public")

    @asynccontextmanager
    async def entered(self, connection: AsyncConnection) -> AsyncIterator[None]:
        """Hold a transaction in which names mean the shadow's tables, where it has them."""
        async with connection.transaction():
            await connection.execute(SETTINGS, [f'"{self.schema}", "{self.live}"'])
            yield

    async def create(self, connection: AsyncConnection, leds: Sequence[Led], position: int) -> None:
        """Make the tables, without indexes, inside a transaction that has `entered`; checkpoints say `position`."""
        await connection.execute(sql.SQL("create schema {}").format(sql.Identifier(self.schema)))
        for name in CHECKPOINTS:
            of = sql.Identifier(self.live, name)
            await connection.execute(
                sql.SQL("create table {} (like {} including all)").format(sql.Identifier(self.schema, name), of)
            )
        for led in leds:
            await connection.execute(led.table.create)
            await connection.execute(f"alter table {led.projection.name} set ({TO_OURSELVES})")
            await connection.execute(BEGIN, [led.projection.name, led.projection.version, position, EPOCH])

    async def index(self, connection: AsyncConnection, leds: Sequence[Led], *, fast: bool) -> None:
        """Make the indexes and the statistics for queries, inside a transaction that has `entered`."""
        await connection.execute("set local maintenance_work_mem = '128MB'")
        if not fast:
            await connection.execute("set local max_parallel_maintenance_workers = 0")
        for led in leds:
            for statement in (*led.table.indexes, f"analyze {led.projection.name}"):
                await connection.execute(statement)

    async def drop(self, connection: AsyncConnection) -> None:
        """Remove the schema and all that it holds."""
        await connection.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(self.schema)))


def shadows_of(projections: Sequence[Projection]) -> tuple[Led, ...]:
    """Return projections as they are moved in a shadow: nobody else leads them there, and nobody listens."""
    return tuple(Led(projection, EPOCH) for projection in projections)
