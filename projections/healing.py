"""Event types that were unknown: conversations that were folded without them are folded again by code that knows them.

Such a conversation is parked first, by the leader, so that nothing more is folded into its rows meanwhile.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from domain.wire import ALL_TYPES
from projections.retrying import fold_again

if TYPE_CHECKING:
    from uuid import UUID

    from psycopg import AsyncConnection

    from domain.event_store import EventStore
    from projections.advance import Led
    from projections.ports import Connections

logger = logging.getLogger(__name__)

LOCK = """
select position from projections where name = %s and epoch = %s and version = %s and status <> 'paused' for update
"""
FOUND = "select 1 from skipped where projection = %s and type = any(%s) limit 1"
PARK = """
with known as (
    delete from skipped where projection = %(name)s and conversation_id in (
        select conversation_id from skipped where projection = %(name)s and type = any(%(types)s)
        order by position limit %(limit)s)
    and type = any(%(types)s) returning *)
insert into parked (
    projection, conversation_id, seq, position, event_id, type, last_seq, last_position, error, attempts
)
select distinct on (conversation_id) projection, conversation_id, seq, position, event_id, type, seq, %(position)s,
    'holds an event of a type that was not known', 0
from known order by conversation_id, seq
on conflict do nothing
"""
PARKED = "select conversation_id from parked where projection = %s and attempts = 0 order by position limit %s"
LIMIT = 100


async def heal(database: Connections, store: EventStore, led: Led) -> None:
    """Fold again what a projection holds only in part. Raises as `fold_again` does."""
    name = led.projection.name
    while found := await _parked(database, led):
        for conversation_id in found:
            await fold_again(database, store, led.projection, conversation_id)
        logger.info("%s folded %d conversations again", name, len(found), extra={"action": "projection_healed"})


async def _parked(database: Connections, led: Led) -> list[UUID]:
    """Park all conversations that are to be folded again, and return some of them."""
    async with database.connection() as connection:
        while await _park(connection, led):
            pass
        found = await (await connection.execute(PARKED, [led.projection.name, LIMIT])).fetchall()
    return [conversation_id for (conversation_id,) in found]


async def _park(connection: AsyncConnection, led: Led) -> bool:
    """Park some conversations that have events of a type which is known now; False if there are none."""
    projection, types = led.projection, list(ALL_TYPES)
    if not await (await connection.execute(FOUND, [projection.name, types])).fetchone():
        return False
    async with connection.transaction():
        values = [projection.name, led.epoch, projection.version]
        row = await (await connection.execute(LOCK, values)).fetchone()
        if row is None:
            return False
        wanted = {"name": projection.name, "types": types, "limit": LIMIT, "position": row[0]}
        await connection.execute(PARK, wanted)
    return True
