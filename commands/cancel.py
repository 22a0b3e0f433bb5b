"""The command that stops what runs and what waits."""

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


class Cancel(BaseModel):
    """Why to stop; the reason is shown to people."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    reason: str | None = Field(default=None, max_length=2000)


async def cancel(
    conversations: Conversations, partials: Partials, conversation_id: UUID, body: Cancel, context: CommandContext
) -> Receipt:
    """Stop the open turn, in one append that needs no worker; the answer's ``cancelled`` says if there was one."""
    partial = await partials.partial(conversation_id)

    def decide(conversation: Conversation, now: datetime) -> dict[str, Any]:
        stopped = conversation.cancel(
            reason=body.reason, now=now, actor=context.scope.actor, partial_text=partial.of(conversation)
        )
        return {"cancelled": stopped}

    return await conversations.execute(conversation_id, context, decide)
