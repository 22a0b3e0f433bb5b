"""The command that records what a person (or the caller's system) says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from domain.conversation_settings import WhenBusy
from domain.decisions import Message
from domain.parts import Part, text_part
from domain.text import clean

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from commands.context import CommandContext, Receipt
    from commands.conversations import Conversations
    from commands.ports import Partial, Partials
    from domain.conversation import Conversation


class TextPart(BaseModel):
    """A part of text."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    type: Literal["text"]
    text: str


class ImageUrl(BaseModel):
    """Where an image is: an ``https:``, ``http:`` or ``data:image/`` URL."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    url: str = Field(pattern=r"^(https?://[^/]|data:image/)")
    detail: Literal["auto", "low", "high"] | None = None


class ImagePart(BaseModel):
    """An image."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    type: Literal["image_url"]
    image_url: ImageUrl


Content = (
    Annotated[str, Field(min_length=1)]
    | Annotated[list[Annotated[TextPart | ImagePart, Field(discriminator="type")]], Field(min_length=1, max_length=100)]
)


class SendMessage(BaseModel):
    """A message: text, or a list of parts. `respond` false is shown, and seen later, but owes no answer."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    content: Content
    message_id: str | None = Field(default=None, min_length=1, max_length=200)
    role: Literal["user", "system"] = "user"
    respond: bool = True
    metadata: dict[str, Any] = Field(default_factory=dict)
    when_busy: WhenBusy | None = None

    def message(self, command_id: UUID, when_busy: str) -> Message:
        """Make the message to record; one without an id is named after its command."""
        parts = (
            [text_part(self.content)]
            if isinstance(self.content, str)
            else [Part.model_validate(part.model_dump(exclude_none=True)) for part in self.content]
        )
        return Message(
            message_id=clean(self.message_id) if self.message_id else f"msg_{command_id.hex}",
            content=parts,
            role=self.role,
            metadata=self.metadata,
            respond=self.respond,
            when_busy=when_busy,
        )


async def send_message(
    conversations: Conversations,
    partials: Partials,
    conversation_id: UUID,
    body: SendMessage,
    context: CommandContext,
) -> Receipt:
    """Record a message by its `when_busy`; the answer holds ``message_id`` and ``queued``.

    Raises `ConversationBusy` (``reject``), `ConversationEnded`, `TooLarge`, and what `Conversations.execute` raises.
    """
    partial: Partial | None = None

    def decide(conversation: Conversation, now: datetime) -> dict[str, Any]:
        when_busy = body.when_busy or conversation.settings.get("when_busy") or "enqueue"
        if when_busy == "interrupt" and conversation.turn is not None and partial is None:
            raise _Interrupts
        message = body.message(context.command_id, when_busy)
        said = partial.of(conversation) if partial else None
        conversation.send_message(message, now=now, actor=context.scope.actor, partial_text=said)
        return {"message_id": message.message_id, "queued": conversation.queued}

    try:
        return await conversations.execute(conversation_id, context, decide)
    except _Interrupts:
        partial = await partials.partial(conversation_id)
        return await conversations.execute(conversation_id, context, decide)


class _Interrupts(Exception):
    """What the interrupted reply has said is needed."""
