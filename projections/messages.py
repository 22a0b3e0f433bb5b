"""Pages of what people see of a conversation."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row

from domain.errors import InvalidInput
from projections.paging import Page, checked_limit
from projections.visibility import require_readable

if TYPE_CHECKING:
    from uuid import UUID

    from psycopg import AsyncConnection

    from domain.scope import Scope
    from projections.projection import Row

COUNT = """
select seq, count(*) from display_messages
where conversation_id = %(id)s and seq > %(after)s and seq < %(before)s
group by seq order by seq {} limit %(limit)s
"""
SHOWN = (
    "seq", "sequence", "turn", "message_type", "content_type", "content", "status", "metadata", "message_id",
    "tool_call_id",
)  # fmt: skip
SELECT = f"""
select event_id, occurred_at, {", ".join(SHOWN)} from display_messages
where conversation_id = %(id)s and seq between %(first)s and %(last)s order by seq, sequence
"""
LAST_SEQ = 2**31 - 1


def item_of(row: Row) -> dict[str, Any]:
    """Return a row of `display_messages` as the API shows it; its id is the same whenever it is shown."""
    item = {"id": f"{row['event_id']}:{row['sequence']}"} | {column: row[column] for column in SHOWN}
    return item | {"occurred_at": row["occurred_at"].astimezone(UTC).isoformat()}


async def messages_of(
    connection: AsyncConnection,
    scope: Scope,
    conversation_id: UUID,
    *,
    before_seq: int | None = None,
    after_seq: int | None = None,
    limit: int = 50,
) -> Page:
    """Return messages with ``after_seq < seq < before_seq``, ascending: with `after_seq` the oldest, else the newest.

    About `limit` of them: all of an event are on one page. `next_cursor` is the next page's after_seq, or before_seq.
    Raises `ConversationNotFound`, `InvalidInput`.
    """
    checked_limit(limit)
    await require_readable(connection, scope, conversation_id)
    forward = after_seq is not None
    values = {
        "id": conversation_id,
        "after": _seq("after_seq", after_seq, 0),
        "before": _seq("before_seq", before_seq, LAST_SEQ),
        "limit": limit + 1,
    }
    counted = await (await connection.execute(COUNT.format("asc" if forward else "desc"), values)).fetchall()
    shown = 0
    on_page: list[int] = []
    for seq, count in counted:
        if on_page and shown + count > limit:
            break
        on_page.append(seq)
        shown += count
    if not on_page:
        return Page([], None)
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(SELECT, values | {"first": min(on_page), "last": max(on_page)})
        items = [item_of(row) for row in await cursor.fetchall()]
    return Page(items, on_page[-1] if len(on_page) < len(counted) else None)


def _seq(field: str, given: int | None, default: int) -> int:
    if given is None:
        return default
    if given < 0:
        raise InvalidInput(field, "must not be negative")
    return min(given, LAST_SEQ)
