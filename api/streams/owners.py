"""Whose conversations are, for those who follow them all: looked up once a process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from domain.errors import ConversationNotFound
from domain.scope import Scope

if TYPE_CHECKING:
    from uuid import UUID

    from commands.conversations import Conversations


class Owners:
    """Asks for the first event of a conversation, one lookup at a time: the others then find it known."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations
        self._asking = asyncio.Lock()

    async def of(self, conversation_id: UUID) -> tuple[str, str] | None:
        """Return tenant and owner, None for a conversation that is no more."""
        async with self._asking:
            try:
                belongs = await self._conversations.authorise(conversation_id, _NOBODY, lambda *_: True)
            except ConversationNotFound:
                return None
        return belongs.tenant, belongs.owner


_NOBODY = Scope("", "")
