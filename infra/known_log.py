"""The check at start that the read models of a database belong to the log that it is used with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.log_identity import check_log

if TYPE_CHECKING:
    from domain.event_store import EventStore
    from infra.database import Database

_KNOWN = "select log_id from known_log"
_CHECKPOINT = "select coalesce(max(position), 0) from projections"
_REMEMBER = "insert into known_log (log_id) values (%s) on conflict do nothing"


async def check_known_log(database: Database, store: EventStore) -> None:
    """Remember the log at first use; raises `WrongLog` for another one, or one that is shorter than a checkpoint."""
    async with database.connection() as connection:
        known = await (await connection.execute(_KNOWN)).fetchone()
        checkpoint = await (await connection.execute(_CHECKPOINT)).fetchone()
        identity = await check_log(
            store, known=known[0] if known else None, checkpoint=checkpoint[0] if checkpoint else 0
        )
        if known is None:
            await connection.execute(_REMEMBER, (identity,))
