"""Which conversations projections have parked, and why: for administrators, and for whoever asks for fresh rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from projections.paging import Page, checked_limit, decode_cursor, encode_cursor, read_time
from projections.reading import fetch

if TYPE_CHECKING:
    from collections.abc import Collection

    from psycopg import AsyncConnection

LIST = """
select conversation_id, seq, position, event_id, type, error, attempts, since, tried_at,
    greatest(last_seq - seq + 1, 1) as waiting
from parked where projection = %(name)s and (since, conversation_id) > (%(since)s::timestamptz, %(id)s::uuid)
order by since, conversation_id limit %(limit)s
"""
BEFORE = """
select distinct conversation_id from parked
where projection = any(%(names)s) and position <= %(position)s
    and (%(id)s::uuid is null or conversation_id = %(id)s)
"""
COUNTS = "select projection, count(*) from parked where projection = any(%s) group by projection order by projection"


class ConversationParked(Exception):
    """Events of a conversation wait in a read model, so that its rows are older than was asked for."""


async def list_parked(connection: AsyncConnection, name: str, *, cursor: str | None, limit: int) -> Page:
    """Return what a projection has parked, oldest first; `waiting` counts events. Raises `InvalidInput`."""
    checked_limit(limit)
    since, after = decode_cursor(cursor, read_time, UUID) if cursor else ("-infinity", UUID(int=0))
    items = await fetch(connection, LIST, {"name": name, "since": since, "id": after, "limit": limit + 1})
    return Page.of(items, limit, lambda last: encode_cursor(last["since"], last["conversation_id"]))


async def count_parked(connection: AsyncConnection, names: Collection[str]) -> dict[str, int]:
    """Return how many conversations these projections have parked; those that have none are left out."""
    return dict(await (await connection.execute(COUNTS, [list(names)])).fetchall())


async def parked_before(
    connection: AsyncConnection, names: Collection[str], position: int, conversation_id: UUID | None = None
) -> list[UUID]:
    """Return conversations (of one: whether it is among them) with events up to a position that wait in any of these.

    Asked after the read models have reached the position, it misses none.
    """
    wanted: dict[str, Any] = {"names": list(names), "position": position, "id": conversation_id}
    return [one for (one,) in await (await connection.execute(BEFORE, wanted)).fetchall()]
