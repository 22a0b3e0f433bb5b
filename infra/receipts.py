"""The receipts of commands that are older than what a command loads, from the read model `commands`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands.ports import KnownCommand, NotCaughtUp
from projections.catalog import PROJECTIONS
from projections.commands import find_command
from projections.versions import OtherVersion, Versions

if TYPE_CHECKING:
    from uuid import UUID

    from infra.database import Database


class PostgresReceipts:
    """Looks commands up in the database of the read models."""

    def __init__(self, database: Database) -> None:
        self._database, self._versions = database, Versions(PROJECTIONS)

    async def find(self, conversation_id: UUID, command_id: UUID, *, up_to_position: int) -> KnownCommand | None:
        """Return the command of this id.

        Raises `NotCaughtUp` if none is known and the conversation is not read up to that position yet.
        """
        try:
            async with self._database.connection() as connection, self._versions.reading(connection, "commands"):
                known, reached = await find_command(connection, conversation_id, command_id)
        except OtherVersion as error:
            raise NotCaughtUp(str(error)) from error
        if known is None:
            if reached < up_to_position:
                raise NotCaughtUp(f"the read model of commands is at {reached}, this needs {up_to_position}")
            return None
        return KnownCommand(known.conversation_id, known.seq, known.position, known.body_hash, known.answer)
