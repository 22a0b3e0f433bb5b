"""What a conversation would be with another log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from api.answers import json_bytes
from api.debugging.changes import Changes
from api.debugging.history import History
from api.debugging.what_if import WhatIf, what_if
from api.endpoints import command
from api.resources import resources
from api.routing import Route, conversation_id_of

if TYPE_CHECKING:
    from commands.context import CommandContext


@command("POST", "/v1/conversations/{conversation_id}/what-if", Changes, answers={200: WhatIf})
async def ask_what_if(request: web.Request, body: Changes, context: CommandContext) -> web.Response:
    """Drop, replace and append events in memory, and see what would be; records nothing and executes nothing.

    What can no longer follow is left out and named.
    """
    have, conversation_id = resources(request), conversation_id_of(request)
    await have.conversations.authorise(conversation_id, context.scope)
    history = History(have.event_store, conversation_id)
    found = await what_if(history, body, default_model=have.settings.model)
    return web.Response(body=await asyncio.to_thread(json_bytes, found), content_type="application/json")


ROUTES: tuple[Route, ...] = (ask_what_if,)
