"""Remove what a projection has left in the database that no code has any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from projections.rebuild.jobs import OVERLAPPING, remove
from projections.rebuild.shadow import Shadow
from projections.schema import LOCK

if TYPE_CHECKING:
    from psycopg import AsyncConnection

LED = "select 1 from leases where key = 'projection:' || %s::text and until > clock_timestamp()"
FORGET = ("delete from parked where projection = %s", "delete from skipped where projection = %s")
UNREGISTER = "delete from projections where name = %s returning name"


class StillLed(Exception):
    """A process that runs has the projection in its code, and moves it along the log."""


async def drop(connection: AsyncConnection, name: str) -> bool:
    """Drop a projection's table, what it has parked and its rebuild; False if there is none. Raises `StillLed`.

    Code that has it makes it anew, from the beginning of the log, when it starts.
    """
    async with connection.transaction():
        await connection.execute(LOCK)
        if await (await connection.execute(LED, [name])).fetchone():
            raise StillLed(f"a running server has the read model {name}: stop it, or start it without that")
        if not await (await connection.execute(UNREGISTER, [name])).fetchone():
            return False
        for rebuild, *_ in await (await connection.execute(OVERLAPPING, [[name]])).fetchall():
            await remove(connection, await Shadow.of(connection, rebuild), rebuild)
        for statement in FORGET:
            await connection.execute(statement, [name])
        await connection.execute(sql.SQL("drop table {}").format(sql.Identifier(name)))
    return True
