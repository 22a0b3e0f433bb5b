"""The command that gives a pending tool call another deadline."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict

from domain.decisions import Rescheduling
from domain.errors import InvalidInput
from domain.scope import Scope

if TYPE_CHECKING:
    from uuid import UUID

    from commands.context import CommandContext, Receipt
    from commands.conversations import Conversations
    from domain.conversation import Conversation


class RescheduleToolCall(BaseModel):
    """When the call expires: an ISO 8601 time with its offset, null for never."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    expires_at: AwareDatetime | None


async def reschedule_tool_call(
    conversations: Conversations,
    conversation_id: UUID,
    tool_call_id: str,
    body: RescheduleToolCall,
    context: CommandContext,
) -> Receipt:
    """Replace the deadline; raises `StaleResolution` if the call is not pending, `InvalidInput` for a past time."""
    try:
        expires_at = body.expires_at.astimezone(UTC) if body.expires_at else None
    except OverflowError:
        raise InvalidInput("expires_at", "is out of range") from None

    def decide(conversation: Conversation, now: datetime) -> dict[str, Any]:
        if expires_at is not None and expires_at <= now:
            raise InvalidInput("expires_at", "must be in the future")
        conversation.reschedule(Rescheduling(tool_call_id, expires_at), now=now, actor=context.scope.actor)
        return {}

    return await conversations.execute(conversation_id, context, decide, allows=Scope.may_resolve)
