"""What a conversation's model calls used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel

from api.answers import json_answer
from api.endpoints import query
from api.pages import Freshness
from api.reading import reading
from api.routes.conversations import UsageTotal
from api.routing import Route, conversation_id_of
from projections.usage import usage_of

if TYPE_CHECKING:
    from aiohttp import web

    from domain.scope import Scope


class UsageItem(UsageTotal):
    """What one turn used with one model for one purpose."""

    turn: int | None
    purpose: str
    model: str | None


class Usage(BaseModel):
    """Usage in the order of the log, and over all."""

    items: list[UsageItem]
    total: UsageTotal


@query("/v1/conversations/{conversation_id}/usage", Freshness, answer=Usage)
async def get_usage(request: web.Request, asked: Freshness, scope: Scope) -> web.Response:
    """Add up tokens and cost, by turn, purpose and model."""
    async with reading(request, asked, "usage", "conversations") as connection:
        found = await usage_of(connection, scope, conversation_id_of(request))
    return json_answer(found)


ROUTES: tuple[Route, ...] = (get_usage,)
