"""Conversations: start, find, change, cancel and end them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import hdrs, web

from api.answers import Accepted, accepted
from api.endpoints import command
from api.resources import resources
from api.routing import Route, conversation_id_of
from commands.cancel import Cancel
from commands.cancel import cancel as cancel_conversation
from commands.change_conversation import ChangeConversation, change_conversation
from commands.create_conversation import CreateConversation, create_conversation
from commands.end_conversation import EndConversation, end_conversation

if TYPE_CHECKING:
    from commands.context import CommandContext

CONVERSATIONS = "/v1/conversations"
CONVERSATION = f"{CONVERSATIONS}/{{conversation_id}}"


class Created(Accepted):
    """A new conversation; the last two fields are those of its first message, if it came with one."""

    message_id: str | None = None
    queued: int | None = None


class Cancelled(Accepted):
    """Whether anything was running or waiting."""

    cancelled: bool


@command("POST", CONVERSATIONS, CreateConversation, answers={201: Created})
async def create(request: web.Request, body: CreateConversation, context: CommandContext) -> web.Response:
    """Start a conversation, with its first message if one is given."""
    have = resources(request)
    receipt = await create_conversation(have.conversations, have.toolset, body, context)
    return accepted(receipt, 201, {hdrs.LOCATION: f"{CONVERSATIONS}/{receipt.conversation_id}"})


@command("PATCH", CONVERSATION, ChangeConversation, answers={200: Accepted})
async def change(request: web.Request, body: ChangeConversation, context: CommandContext) -> web.Response:
    """Change title, settings and metadata by a JSON merge patch; settings act from the next turn."""
    have = resources(request)
    return accepted(
        await change_conversation(have.conversations, have.toolset, conversation_id_of(request), body, context)
    )


@command("POST", f"{CONVERSATION}/cancel", Cancel, answers={202: Cancelled, 200: Cancelled})
async def cancel(request: web.Request, body: Cancel, context: CommandContext) -> web.Response:
    """Stop what runs and what waits."""
    have = resources(request)
    receipt = await cancel_conversation(have.conversations, have.partials, conversation_id_of(request), body, context)
    return accepted(receipt, 202 if receipt.answer["cancelled"] else 200)


@command("POST", f"{CONVERSATION}/end", EndConversation, answers={200: Accepted})
async def end(request: web.Request, body: EndConversation, context: CommandContext) -> web.Response:
    """End a conversation; it stays readable and accepts nothing more."""
    have = resources(request)
    return accepted(
        await end_conversation(have.conversations, have.partials, conversation_id_of(request), body, context)
    )


ROUTES: tuple[Route, ...] = (create, change, cancel, end)
