"""The command after which a conversation accepts nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from commands.context import CommandContext, Receipt
    from commands.conversations import Conversations
    from commands.ports import Partials
    from domain.conversation import Conversation


class EndConversation(BaseModel):
    """Why the conversation is over."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    reason: str | None = Field(default=None, max_length=2000)


async def end_conversation(
    conversations: Conversations,
    partials: Partials,
    conversation_id: UUID,
    body: EndConversation,
    context: CommandContext,
) -> Receipt:
    """End the conversation; what runs is stopped in the same append. Raises `ConversationEnded` if it was over."""
    partial = await partials.partial(conversation_id)

    def decide(conversation: Conversation, now: datetime) -> dict[str, Any]:
        conversation.end(reason=body.reason, now=now, actor=context.scope.actor, partial_text=partial.of(conversation))
        return {}

    return await conversations.execute(conversation_id, context, decide)
