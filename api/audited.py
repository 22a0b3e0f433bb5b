"""The requests that models were really sent, as far as the audit has kept them, for those who look back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import from_json

from api.debugging.history import SentMessages
from infra.audit_reading import request_as_of

if TYPE_CHECKING:
    from uuid import UUID

    from infra.database import Database


class AuditedRequests:
    """Looks into the audit; whoever asks has looked whether the caller may read the conversation."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sent_as_of(self, conversation_id: UUID, seq: int) -> SentMessages | None:
        """Return the newest request that saw the log up to this seq and no further, None where none is kept."""
        async with self._database.connection() as connection:
            sent = await request_as_of(connection, conversation_id, seq)
        if sent is None or sent.redacted:
            return None
        return SentMessages(sent.model, [from_json(message) for message in sent.messages])
