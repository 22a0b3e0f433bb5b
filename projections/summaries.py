"""What the older part of conversations was summarised to: for people who want to know what the model sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projections.paging import Page, checked_limit, decode_cursor, encode_cursor, read_seq
from projections.projection import Projection, Rows
from projections.reading import fetch
from projections.visibility import require_readable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from psycopg import AsyncConnection

    from domain.scope import Scope
    from projections.event import Event

RECORDED = (
    "from_seq", "to_seq", "content", "version", "strategy", "model", "usage", "tokens_before", "based_on", "resources",
)  # fmt: skip


def fold(rows: Rows, events: Sequence[Event]) -> None:
    """Keep what was recorded, and mark what was revoked; nothing else happens to a summary."""
    for event in events:
        match event.type:
            case "summary_recorded":
                recorded = {column: event.data.get(column) for column in RECORDED}
                rows.put({"seq": event.seq, **recorded, "status": "live", "recorded_at": event.occurred_at})
            case "summary_revoked":
                for row in rows:
                    if row["to_seq"] >= event.data["to_seq"]:
                        rows.put({**row, "status": "revoked"})


SUMMARIES = Projection(
    name="summaries",
    version=1,
    columns={
        "seq": "int not null",
        "from_seq": "int not null",
        "to_seq": "int not null",
        "content": "text not null",
        "version": "int not null",
        "strategy": "text not null",
        "model": "text",
        "usage": "json",
        "tokens_before": "bigint not null",
        "based_on": "int",
        "resources": "json",
        "status": "text not null",
        "recorded_at": "timestamptz not null",
    },
    streams="summaries",
    key=("seq",),
    open_while=("status", frozenset({"live"})),
    fold=fold,
)

SELECT = """
select conversation_id, from_seq, to_seq, content, version, strategy, model, usage, tokens_before, based_on, resources,
    status = 'revoked' as revoked, recorded_at, seq
from summaries where conversation_id = %(id)s and seq > %(after)s order by seq limit %(limit)s
"""


async def summaries_of(
    connection: AsyncConnection, scope: Scope, conversation_id: UUID, *, cursor: str | None = None, limit: int = 50
) -> Page:
    """Return a conversation's summaries, revoked ones too, in the order in which they were recorded.

    Raises `ConversationNotFound`, `InvalidInput`.
    """
    checked_limit(limit)
    await require_readable(connection, scope, conversation_id)
    [after] = decode_cursor(cursor, read_seq) if cursor else [0]
    found = await fetch(connection, SELECT, {"id": conversation_id, "after": after, "limit": limit + 1})
    return Page.of(found, limit, lambda last: encode_cursor(last["seq"]))
