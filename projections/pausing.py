"""Hold a projection where it is, and let it go on: written in the database, so that every process obeys."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from psycopg import AsyncConnection

PAUSE = "update projections set status = 'paused' where name = %s returning name"
RESUME = """
update projections set error = case status when 'paused' then null else error end,
    status = case when status <> 'paused' then status when position = 0 then 'new' else 'running' end
where name = %s returning name
"""
PAUSED_AMONG = "select name from projections where name = any(%s) and status = 'paused' order by name"


class ProjectionPaused(Exception):
    """A read model is held back, so that its rows are older than was asked for."""


async def pause(connection: AsyncConnection, name: str) -> bool:
    """Move the projection's checkpoint no further, also after a restart; False if there is no such projection."""
    return await (await connection.execute(PAUSE, [name])).fetchone() is not None


async def resume(connection: AsyncConnection, name: str) -> bool:
    """Let a paused projection go on within seconds; False if there is no such projection."""
    return await (await connection.execute(RESUME, [name])).fetchone() is not None


async def refuse_paused(connection: AsyncConnection, names: Collection[str]) -> None:
    """Raise `ProjectionPaused` if one of these is paused."""
    if paused := await (await connection.execute(PAUSED_AMONG, [list(names)])).fetchall():
        raise ProjectionPaused(f"the read model {paused[0][0]} is paused until an administrator resumes it")
