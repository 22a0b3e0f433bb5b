"""Messages: say something in a conversation, and read what people see of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from api.answers import Accepted, accepted
from api.endpoints import command
from api.resources import resources
from api.routing import Route, conversation_id_of
from commands.send_message import SendMessage, send_message

if TYPE_CHECKING:
    from aiohttp import web

    from commands.context import CommandContext

MESSAGES = "/v1/conversations/{conversation_id}/messages"


class MessageAccepted(Accepted):
    """A recorded message; `queued` is the number of messages that now wait for a later turn."""

    message_id: str
    queued: int


@command("POST", MESSAGES, SendMessage, answers={202: MessageAccepted})
async def send(request: web.Request, body: SendMessage, context: CommandContext) -> web.Response:
    """Say something; it is durable when this answers, and what the agent replies comes by the stream."""
    have = resources(request)
    receipt = await send_message(have.conversations, have.partials, conversation_id_of(request), body, context)
    return accepted(receipt, 202)


ROUTES: tuple[Route, ...] = (send,)
