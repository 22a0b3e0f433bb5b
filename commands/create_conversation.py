"""The command that starts a conversation, with its first message if one is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from pydantic import BaseModel, ConfigDict, Field

from commands.change_conversation import checked_settings
from commands.context import CommandContext, Receipt
from commands.conversations import answered_before, known_in, mark_of
from commands.send_message import SendMessage
from commands.session import Session
from domain.conversation import Conversation
from domain.conversation_settings import ConversationSettings
from domain.errors import ConversationExists, ConversationNotFound
from domain.hooks import NO_HOOKS
from domain.wire import stream_of

if TYPE_CHECKING:
    from datetime import datetime

    from commands.conversations import Conversations
    from domain.hooks import Hooks
    from domain.tools import Toolset


class CreateConversation(BaseModel):
    """A new conversation; without an id it gets one that a repeat of the same command gets too."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    id: UUID | None = None
    title: str | None = Field(default=None, max_length=500)
    settings: ConversationSettings = ConversationSettings()
    metadata: dict[str, Any] = Field(default_factory=dict)
    message: SendMessage | None = None


async def create_conversation(
    conversations: Conversations,
    toolset: Toolset,
    body: CreateConversation,
    context: CommandContext,
    *,
    hooks: Hooks = NO_HOOKS,
) -> Receipt:
    """Start a conversation; raises `ConversationExists` if the id is taken by anything but this very command."""
    conversation_id = body.id or uuid5(context.command_id, "conversation")
    settings = checked_settings(body.settings.model_dump(mode="json", exclude_none=True), toolset, hooks)

    def decide(conversation: Conversation, now: datetime) -> dict[str, Any]:
        if conversation.version:
            raise ConversationExists("the id is taken; use another, or none")
        actor = context.scope.actor
        conversation.start(
            tenant=context.scope.tenant,
            owner=context.scope.user,
            title=body.title,
            settings=settings,
            metadata=body.metadata,
            now=now,
            actor=actor,
        )
        if body.message is None:
            return {}
        message = body.message.message(context.command_id, body.message.when_busy or "enqueue")
        conversation.send_message(message, now=now, actor=actor)
        return {"message_id": message.message_id, "queued": conversation.queued}

    session = Session(conversations.store, conversations.clock, Conversation.at(conversation_id))
    try:
        answer = await session.append(decide, mark=lambda said: mark_of(context, said))
    except ConversationNotFound:
        raise ConversationExists("the id was taken by a conversation that was erased; use another") from None
    except ConversationExists:
        known = known_in(await conversations.store.read(stream_of(conversation_id), before=8), context.command_id)
        if known is None:
            raise
        return answered_before(known, context)
    receipt = Receipt(conversation_id, session.seq, session.position, answer)
    await conversations.wake(session)
    return receipt
