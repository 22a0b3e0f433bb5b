"""Holds on conversations whose log is being imported: until all of it is there, no worker looks at it.

They are claims in the agenda that do not end by themselves: half a log may seem to owe what the whole one does not. An
import that was killed leaves them behind, and the next one of the same conversation takes them over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString
from uuid import UUID, uuid5

if TYPE_CHECKING:
    from infra.database import Database

_IMPORTS = UUID("0d3f5c1e-6d0d-4f5a-9d0e-3f0a2f6f9b51")
"""The namespace of the holder's names: each import of a conversation has the same."""

_KINDS = ("turn", "compaction")

# One row per statement and transaction: the projector locks a conversation's rows in an order of its own.
# 'infinity' would be no time to subtract another from before PostgreSQL 17
_HOLD: LiteralString = """
insert into agenda as a (conversation_id, kind, claimed_by, hold_until)
values (%(id)s, %(kind)s, %(token)s, clock_timestamp() + interval '1000 years')
on conflict (conversation_id, kind) do update set claimed_by = excluded.claimed_by, hold_until = excluded.hold_until
    where a.claimed_by = excluded.claimed_by or a.hold_until is null or a.hold_until < clock_timestamp()
returning kind
"""

_RELEASE: LiteralString = """
with released as (
    update agenda a set claimed_by = null, hold_until = null, strikes = 0
    where a.conversation_id = %(id)s and a.kind = %(kind)s and a.claimed_by = %(token)s
    returning a.kind)
select pg_notify('agenda ' || kind, '0') from released
"""


class ImportHolds:
    """Keeps workers away from conversations, whatever happens to this process."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def hold(self, conversation_id: UUID) -> bool:
        """Keep all workers away, durably; False if one is at it."""
        async with self._database.connection() as connection:
            for values in _values(conversation_id):
                if await (await connection.execute(_HOLD, values)).fetchone() is None:
                    break
            else:
                return True
        await self.release(conversation_id)
        return False

    async def release(self, conversation_id: UUID) -> None:
        """Let workers look, if they were kept away."""
        async with self._database.connection() as connection:
            for values in _values(conversation_id):
                await connection.execute(_RELEASE, values)


def _values(conversation_id: UUID) -> list[dict[str, object]]:
    token = uuid5(_IMPORTS, str(conversation_id))
    return [{"id": conversation_id, "kind": kind, "token": token} for kind in _KINDS]
