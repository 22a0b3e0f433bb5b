"""Messages: say something in a conversation, and read what people see of it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from api.answers import Accepted, accepted, json_answer
from api.endpoints import command, query
from api.pages import Freshness, Limit, Position
from api.reading import reading
from api.resources import resources
from api.routing import Route, conversation_id_of
from commands.send_message import SendMessage, send_message
from projections.messages import messages_of

if TYPE_CHECKING:
    from aiohttp import web

    from commands.context import CommandContext
    from domain.scope import Scope

MESSAGES = "/v1/conversations/{conversation_id}/messages"


class MessageAccepted(Accepted):
    """A recorded message; `queued` is the number of messages that now wait for a later turn."""

    message_id: str
    queued: int


class MessagesQuery(Freshness):
    """Messages of an open interval of seqs: with `after_seq` the oldest ones, else the newest."""

    before_seq: Position | None = None
    after_seq: Position | None = None
    limit: Limit = 50


class MessageItem(BaseModel):
    """One thing that people see; `sequence` is its index within its event."""

    id: str
    seq: int
    sequence: int
    turn: int | None
    message_type: Literal["user", "assistant", "tool", "system"]
    content_type: str
    content: Any
    status: str
    metadata: dict[str, Any]
    message_id: str | None
    tool_call_id: str | None
    occurred_at: datetime


class MessagePage(BaseModel):
    """Messages, ascending; `next_cursor` is the seq for ``after_seq`` if that was given, else for ``before_seq``."""

    items: list[MessageItem]
    next_cursor: int | None


@command("POST", MESSAGES, SendMessage, answers={202: MessageAccepted})
async def send(request: web.Request, body: SendMessage, context: CommandContext) -> web.Response:
    """Say something; it is durable when this answers, and what the agent replies comes by the stream."""
    have = resources(request)
    receipt = await send_message(have.conversations, have.partials, conversation_id_of(request), body, context)
    return accepted(receipt, 202)


@query(MESSAGES, MessagesQuery, answer=MessagePage)
async def list_messages(request: web.Request, asked: MessagesQuery, scope: Scope) -> web.Response:
    """Read what people see of a conversation; a page never splits what one event brought."""
    async with reading(request, asked, "display_messages", "conversations") as connection:
        page = await messages_of(
            connection,
            scope,
            conversation_id_of(request),
            before_seq=asked.before_seq,
            after_seq=asked.after_seq,
            limit=asked.limit,
        )
    return json_answer(page)


ROUTES: tuple[Route, ...] = (send, list_messages)
