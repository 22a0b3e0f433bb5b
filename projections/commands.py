"""Which commands were accepted, and what they were answered: so that a repeat is answered alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from projections.projection import NEVER, Projection, Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import AsyncConnection

    from projections.event import Event


def fold(rows: Rows, events: Sequence[Event]) -> None:
    """Keep the newest event of each command; copies of a fork are nobody's command."""
    for event in events:
        metadata = event.metadata
        if metadata.get("command_id") and not event.is_copy:
            rows.put(
                {
                    "command_id": UUID(metadata["command_id"]),
                    "seq": event.seq,
                    "position": event.position,
                    "body_hash": metadata["body_hash"],
                    "receipt": metadata.get("receipt", {}),
                }
            )


COMMANDS = Projection(
    name="commands",
    version=1,
    columns={
        "command_id": "uuid not null",
        "seq": "int not null",
        "position": "bigint not null",
        "body_hash": "text not null",
        "receipt": "json not null",
    },
    key=("command_id",),
    open_while=NEVER,
    indexes=("(command_id)",),
    fold=fold,
)


@dataclass(frozen=True, slots=True)
class KnownCommand:
    """A command that was accepted: what its last event says of it, `answer` being the fields of its own answer."""

    conversation_id: UUID
    seq: int
    position: int
    body_hash: str
    answer: dict[str, Any]


# one statement, so one snapshot: what is not found was not there when the position was that
FIND = """
select coalesce(parked.position - 1, p.position), c.conversation_id, c.seq, c.position, c.body_hash, c.receipt
from projections p
left join commands c on c.command_id = %(command_id)s
left join parked on parked.projection = p.name and parked.conversation_id = %(conversation_id)s
where p.name = 'commands'
"""


async def find_command(
    connection: AsyncConnection, conversation_id: UUID, command_id: UUID
) -> tuple[KnownCommand | None, int]:
    """Return a command, and how far the conversation's are read: what is not found was not there by that position.

    The id is itself made of tenant, user, path and key, so there is no scope to ask for.
    """
    row = await (
        await connection.execute(FIND, {"conversation_id": conversation_id, "command_id": command_id})
    ).fetchone()
    if row is None:
        return None, 0
    return KnownCommand(*row[1:]) if row[1] else None, row[0]
