"""Where a caller's conversations are in the log, from the read model `conversations`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domain.scope import Scope
from projections.catalog import PROJECTIONS
from projections.conversations import LogSpan, spans_of
from projections.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infra.database import Database


class PostgresOwnedConversations:
    """Asks the database of the read models."""

    def __init__(self, database: Database) -> None:
        self._database, self._versions = database, Versions(PROJECTIONS)

    async def owned(self, tenant: str, owner: str, after: int) -> tuple[int, Sequence[LogSpan]]:
        """Return how far the log is known, and the owner's conversations with an event after position `after`.

        Raises `projections.versions.OtherVersion`.
        """
        async with self._database.connection() as connection, self._versions.reading(connection, "conversations"):
            return await spans_of(connection, Scope(tenant, owner), after)
