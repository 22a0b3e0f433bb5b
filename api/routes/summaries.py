"""What the older part of conversations was summarised to, for the model: look at it, ask for it, take it back."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from pydantic import BaseModel

from api.answers import Accepted, accepted, json_answer
from api.endpoints import command, query
from api.errors import NotFound
from api.pages import PageOf, PageQuery
from api.reading import reading
from api.resources import resources
from api.routing import Route, conversation_id_of
from commands.compact import Compact, request_summary, revoke_summary
from projections.summaries import summaries_of

if TYPE_CHECKING:
    from aiohttp import web

    from commands.context import CommandContext
    from domain.scope import Scope

CONVERSATION = "/v1/conversations/{conversation_id}"


class SummaryItem(BaseModel):
    """A summary that stands for the conversation up to `to_seq`; what went into it begins at `from_seq`."""

    conversation_id: UUID
    from_seq: int
    to_seq: int
    content: str
    version: int
    strategy: Literal["llm", "window", "none"]
    model: str | None
    usage: dict[str, Any] | None
    tokens_before: int
    based_on: int | None
    resources: list[dict[str, str]]
    revoked: bool
    recorded_at: datetime


class Revoked(Accepted):
    """The `to_seq` of the summaries that are as if they had never been."""

    revoked: list[int]


@command("POST", f"{CONVERSATION}/compact", Compact, answers={202: Accepted})
async def compact(request: web.Request, body: Compact, context: CommandContext) -> web.Response:
    """Have the older part of the conversation summarised now; nothing that people see changes."""
    receipt = await request_summary(resources(request).conversations, conversation_id_of(request), context)
    return accepted(receipt, 202)


@query(f"{CONVERSATION}/summaries", PageQuery, answer=PageOf[SummaryItem])
async def list_summaries(request: web.Request, asked: PageQuery, scope: Scope) -> web.Response:
    """List summaries, revoked ones too, in the order in which they were recorded."""
    async with reading(request, asked, "summaries", "conversations") as connection:
        page = await summaries_of(
            connection, scope, conversation_id_of(request), cursor=asked.cursor, limit=asked.limit
        )
    return json_answer(page)


@command("DELETE", f"{CONVERSATION}/summaries/{{to_seq}}", Compact, answers={200: Revoked})
async def revoke(request: web.Request, body: Compact, context: CommandContext) -> web.Response:
    """Revoke a summary, and those built on it: from the next turn on the model sees again what they stood for."""
    to_seq = request.match_info["to_seq"]
    if not (to_seq.isascii() and to_seq.isdecimal() and len(to_seq) < 10):
        raise NotFound
    conversations = resources(request).conversations
    return accepted(await revoke_summary(conversations, conversation_id_of(request), int(to_seq), context))


ROUTES: tuple[Route, ...] = (compact, list_summaries, revoke)
