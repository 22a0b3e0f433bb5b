"""The command that changes a conversation's title, settings and metadata from the next turn on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from domain.conversation_settings import ConversationSettings
from domain.errors import InvalidInput
from domain.hooks import NO_HOOKS

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from commands.context import CommandContext, Receipt
    from commands.conversations import Conversations
    from domain.conversation import Conversation
    from domain.hooks import Hooks
    from domain.tools import Toolset


class ChangeConversation(BaseModel):
    """A merge patch (RFC 7396) of settings and metadata: null takes a key away; an absent field stays as it is."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    title: str | None = Field(default=None, max_length=500)
    settings: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None


async def change_conversation(
    conversations: Conversations,
    toolset: Toolset,
    conversation_id: UUID,
    body: ChangeConversation,
    context: CommandContext,
    *,
    hooks: Hooks = NO_HOOKS,
) -> Receipt:
    """Apply the patch; raises `InvalidInput` where it names no setting, or those that result are not valid."""
    for name in body.settings or ():
        if name not in ConversationSettings.model_fields:
            raise InvalidInput(f"settings.{name}", "is no setting of a conversation")

    def decide(conversation: Conversation, now: datetime) -> dict[str, Any]:
        settings, metadata = conversation.settings, conversation.metadata
        if "settings" in body.model_fields_set:
            settings = checked_settings(merged(settings, body.settings), toolset, hooks)
        if "metadata" in body.model_fields_set:
            metadata = merged(metadata, body.metadata)
        title = body.title if "title" in body.model_fields_set else None
        if "title" in body.model_fields_set and title is None:
            title = ""
        conversation.change(title=title, settings=settings, metadata=metadata, now=now, actor=context.scope.actor)
        return {}

    return await conversations.execute(conversation_id, context, decide)


def merged(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396, section 2); `None` as the whole patch empties an object."""
    if patch is None:
        return {}
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value) if isinstance(value, dict) else value
    return result


def checked_settings(settings: dict[str, Any], toolset: Toolset, hooks: Hooks = NO_HOOKS) -> dict[str, Any]:
    """Return the settings as they are stored: only what is given; raises `InvalidInput` naming what is wrong."""
    try:
        parsed = ConversationSettings.model_validate(settings, strict=True)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise InvalidInput(_path(first["loc"], settings), first["msg"]) from None
    toolset.select(parsed.tools)
    hooks.check(parsed.hooks)
    return parsed.model_dump(mode="json", exclude_none=True)


def _path(loc: tuple[int | str, ...], settings: Any) -> str:
    """Name the place of an error as far as it is one in `settings`: pydantic names the branches of unions too."""
    path, value = ["settings"], settings
    for part in loc:
        in_list = isinstance(value, list) and isinstance(part, int)
        if not (in_list or (isinstance(value, dict) and part in value)):
            break
        path.append(str(part))
        value = value[part]
    return ".".join(path)
