"""Whose rows a query may see: no query runs without a scope, and what is not visible is as if absent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, LiteralString

from domain.errors import ConversationNotFound

if TYPE_CHECKING:
    from uuid import UUID

    from psycopg import AsyncConnection

    from domain.scope import Scope

READABLE = "select tenant, owner from conversations where conversation_id = %s"


def visible(scope: Scope, *, all_owners: bool) -> tuple[LiteralString, dict[str, Any]]:
    """Return a condition on rows of ``conversations``, and its parameters: the scope's tenant, and owner unless all."""
    if all_owners:
        return "conversations.tenant = %(tenant)s", {"tenant": scope.tenant}
    mine: LiteralString = "conversations.tenant = %(tenant)s and conversations.owner = %(user)s"
    return mine, {"tenant": scope.tenant, "user": scope.user}


async def require_readable(connection: AsyncConnection, scope: Scope, conversation_id: UUID) -> None:
    """Raise `ConversationNotFound` unless the scope may read the conversation."""
    row = await (await connection.execute(READABLE, [conversation_id])).fetchone()
    if row is None or not scope.may_read(row[0], row[1]):
        raise ConversationNotFound("no such conversation")
