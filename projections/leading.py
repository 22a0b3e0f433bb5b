"""Who leads a projection: its epoch refuses all former leaders, also those that sleep inside a transaction."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from psycopg.errors import LockNotAvailable

from projections.advance import NotLeading

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from projections.advance import Led

logger = logging.getLogger(__name__)

PAUSED = "paused"

TAKE_OVER = """
update projections set epoch = %(epoch)s, status = case status when 'new' then 'running' else status end
where name = %(name)s and version = %(version)s and epoch <= %(epoch)s returning position, status
"""
IMPATIENT = "set local lock_timeout = '1s'"
# who has locked the row, and does nothing but wait for what its client sends next
HANG_UP = """
select pg_terminate_backend(pid) from projections
join pg_locks on pg_locks.transactionid = projections.xmax and pg_locks.granted
join pg_stat_activity using (pid)
where name = %s and wait_event_type = 'Client' and query_start < clock_timestamp() - interval '1 second'
"""


class Checkpoint(NamedTuple):
    """How far a projection is, and whether it is to stay there."""

    position: int
    paused: bool


async def take_over(connection: AsyncConnection, led: Led) -> Checkpoint:
    """Refuse all former leaders from now on and return the checkpoint.

    A former leader that was stopped while it sent its transaction holds the row: its connection is ended. Raises
    `NotLeading` for a newer leader or another version.
    """
    while True:
        try:
            return await _take_over(connection, led)
        except LockNotAvailable:
            logger.warning("%s is held by a transaction", led.projection.name, extra={"action": "projection_held"})
            await connection.execute(HANG_UP, [led.projection.name])


async def _take_over(connection: AsyncConnection, led: Led) -> Checkpoint:
    wanted = {"epoch": led.epoch, "name": led.projection.name, "version": led.projection.version}
    async with connection.transaction():
        await connection.execute(IMPATIENT)
        row = await (await connection.execute(TAKE_OVER, wanted)).fetchone()
    if row is None:
        raise NotLeading(f"{led.projection.name} is led by another process, or of another version")
    return Checkpoint(row[0], row[1] == PAUSED)
