"""Rebuilds as the database knows them: what is to be made, by whom, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from psycopg.errors import UniqueViolation

from projections.rebuild.ordered_log import Slice
from projections.rebuild.shadow import Shadow
from projections.versions import refuse_newer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import AsyncConnection

    from projections.projection import Projection

WANT = "insert into rebuilds (id, fast) values (%s, %s)"
WANT_EACH = "insert into rebuilt_projections (name, version, rebuild) values (%s, %s, %s)"
OVERLAPPING = """
select rebuild, array_agg(name), array_agg(version) from rebuilt_projections
where rebuild in (select rebuild from rebuilt_projections where name = any(%s)) group by rebuild
"""
TAKE = """
update rebuilds set holder = %(holder)s, fast = fast or %(fast)s, cancelled = false, began_at = clock_timestamp(),
    done_before = (select coalesce(sum(events), 0) from rebuild_slices where rebuild = id and done)
where id = %(id)s
"""
HELD = "select 1 from rebuilds where id = %s and holder = %s and not cancelled for share"
CANCEL = "update rebuilds set cancelled = true where id = (select rebuild from rebuilt_projections where name = %s)"
FAILED = """
update rebuilds set holder = null, error = %s, failed_at = clock_timestamp() where id = %s and holder = %s
"""
SLICE = """
insert into rebuild_slices (rebuild, number, first_stream, next_stream, events) values (%s, %s, %s, %s, %s)
"""


class RebuildRunning(Exception):
    """The projection is being rebuilt already."""


class RebuildLost(Exception):
    """The rebuild was cancelled, or another process goes on with it; nothing was written."""


@dataclass(frozen=True, slots=True)
class Job:
    """A rebuild that this process makes: only under its `token` is anything written for it."""

    id: UUID
    token: UUID
    shadow: Shadow
    fast: bool

    async def hold(self, connection: AsyncConnection) -> None:
        """Raise `RebuildLost` unless the rebuild is still this process's, and stays so until the transaction ends."""
        if not await (await connection.execute(HELD, [self.id, self.token])).fetchone():
            raise RebuildLost("the rebuild was cancelled, or another process goes on with it")


async def want(connection: AsyncConnection, projections: Sequence[Projection], *, fast: bool = False) -> UUID:
    """Ask for a rebuild, which a process with the role `projector` will make.

    Raises `RebuildRunning` if one is wanted or under way, `ProjectionMismatch`.
    """
    rebuild = uuid4()
    try:
        async with connection.transaction():
            await refuse_newer(connection, projections)
            await connection.execute(WANT, [rebuild, fast])
            for one in projections:
                await connection.execute(WANT_EACH, [one.name, one.version, rebuild])
    except UniqueViolation as error:
        names = ", ".join(one.name for one in projections)
        raise RebuildRunning(f"{names}: a rebuild is under way; see `rejoinder projections`") from error
    return rebuild


async def take(connection: AsyncConnection, projections: Sequence[Projection], *, fast: bool) -> Job:
    """Begin a rebuild of these, or go on with one that was left: only under the leases of all of them.

    Another one that was left is removed. Raises `ProjectionMismatch`.
    """
    async with connection.transaction():
        await refuse_newer(connection, projections)
        wanted = {one.name: one.version for one in projections}
        mine = None
        for rebuild, names, versions in await (await connection.execute(OVERLAPPING, [list(wanted)])).fetchall():
            if dict(zip(names, versions, strict=True)) == wanted:
                mine = rebuild
            else:
                await remove(connection, await Shadow.of(connection, rebuild), rebuild)
        if mine is None:
            mine = await want(connection, projections, fast=fast)
        token = uuid4()
        await connection.execute(TAKE, {"id": mine, "holder": token, "fast": fast})
        return Job(mine, token, await Shadow.of(connection, mine), fast)


async def remove(connection: AsyncConnection, shadow: Shadow, rebuild: UUID) -> None:
    """Leave no trace of a rebuild."""
    await shadow.drop(connection)
    await connection.execute("delete from rebuilds where id = %s", [rebuild])


async def let_go(connection: AsyncConnection, job: Job, error: str | None) -> None:
    """Leave a rebuild to whoever takes it next; `error` says why it could not go on."""
    await connection.execute(FAILED, [error, job.id, job.token])


async def remove_of(connection: AsyncConnection, projections: Sequence[Projection]) -> None:
    """Leave no trace of rebuilds that have to do with these: only under the leases of all of them."""
    async with connection.transaction():
        names = [one.name for one in projections]
        for rebuild, *_ in await (await connection.execute(OVERLAPPING, [names])).fetchall():
            await remove(connection, await Shadow.of(connection, rebuild), rebuild)


async def remove_cancelled(connection: AsyncConnection, job: Job) -> None:
    """Leave no trace of a rebuild that was cancelled, if it was."""
    async with connection.transaction():
        cursor = await connection.execute("delete from rebuilds where id = %s and cancelled", [job.id])
        if cursor.rowcount:
            await job.shadow.drop(connection)


async def cancel(connection: AsyncConnection, name: str) -> bool:
    """Cancel the rebuild of a projection, with all that it makes; False if there is none. Its holder stops soon."""
    return (await connection.execute(CANCEL, [name])).rowcount > 0


async def position_of(connection: AsyncConnection, job: Job) -> int | None:
    """Return the position up to which the log is cut, None before the tables were made."""
    row = await (await connection.execute("select position from rebuilds where id = %s", [job.id])).fetchone()
    return row[0] if row else None


async def begin(connection: AsyncConnection, job: Job, position: int) -> None:
    """Remember the position up to which the log is cut."""
    await connection.execute("update rebuilds set position = %s where id = %s", [position, job.id])


async def is_cut(connection: AsyncConnection, job: Job) -> bool:
    """Say whether the slices are known."""
    cursor = await connection.execute("select 1 from rebuild_slices where rebuild = %s limit 1", [job.id])
    return await cursor.fetchone() is not None


async def is_indexed(connection: AsyncConnection, job: Job) -> bool:
    """Say whether the new tables have their indexes."""
    cursor = await connection.execute("select 1 from rebuilds where id = %s and indexed", [job.id])
    return await cursor.fetchone() is not None


async def set_indexed(connection: AsyncConnection, job: Job) -> None:
    """Remember that the new tables have their indexes."""
    await connection.execute("update rebuilds set indexed = true where id = %s", [job.id])


async def keep_slices(connection: AsyncConnection, job: Job, slices: Sequence[Slice]) -> None:
    """Remember how the log is cut."""
    async with connection.cursor() as cursor:
        await cursor.executemany(SLICE, [(job.id, number, *piece) for number, piece in enumerate(slices)])


async def open_slices(connection: AsyncConnection, job: Job) -> list[tuple[int, Slice]]:
    """Return the slices that are not folded yet, by their numbers."""
    cursor = await connection.execute(
        "select number, first_stream, next_stream, events from rebuild_slices "
        "where rebuild = %s and not done order by number",
        [job.id],
    )
    return [(number, Slice(*piece)) for number, *piece in await cursor.fetchall()]


async def finish_slice(connection: AsyncConnection, job: Job, number: int, late: Sequence[str]) -> None:
    """Say that a slice is folded, in the transaction that does it, but for `late` projections. Raises `RebuildLost`."""
    await job.hold(connection)
    done = await connection.execute(
        "update rebuild_slices set done = true, late = %s where rebuild = %s and number = %s and not done",
        [list(late), job.id, number],
    )
    if not done.rowcount:
        raise RebuildLost("another process has folded this part of the log")


async def late_slices(connection: AsyncConnection, job: Job) -> list[tuple[int, Slice, list[str]]]:
    """Return the slices that some projections are to fold once more, and which."""
    cursor = await connection.execute(
        "select number, first_stream, next_stream, events, late from rebuild_slices "
        "where rebuild = %s and late <> '{}' order by number",
        [job.id],
    )
    return [(number, Slice(*piece), late) for number, *piece, late in await cursor.fetchall()]


async def finish_late(connection: AsyncConnection, job: Job, number: int) -> None:
    """Say that this is done, in the transaction that does it."""
    await connection.execute(
        "update rebuild_slices set late = '{}' where rebuild = %s and number = %s", [job.id, number]
    )
