"""Why an event came about, and what came of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from api.answers import json_answer
from api.debugging.trace import Trace, trace
from api.debugging.turns import event_named, turns_around
from api.endpoints import query
from api.errors import NotFound
from api.queries import NoParameters
from api.resources import resources
from api.routing import Route, conversation_id_of
from projections.event import Event

if TYPE_CHECKING:
    from aiohttp import web

    from domain.scope import Scope


@query("/v1/conversations/{conversation_id}/trace/{event_id}", NoParameters, answer=Trace)
async def get_trace(request: web.Request, asked: NoParameters, scope: Scope) -> web.Response:
    """Trace an event: its causes up to the user's message, its effects down to the turn's end.

    The event is named by its id or by its seq.
    """
    have, conversation_id = resources(request), conversation_id_of(request)
    await have.conversations.authorise(conversation_id, scope)
    try:
        wanted = event_named(request.match_info["event_id"])
    except ValueError:
        raise NotFound from None
    stored = await turns_around(have.event_store, conversation_id, wanted)
    found = await asyncio.to_thread(trace, [Event(event, conversation_id) for event in stored], wanted)
    if found is None:
        raise NotFound
    return json_answer(found)


ROUTES: tuple[Route, ...] = (get_trace,)
