"""What a conversation was at any of its events, and how it came there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from api.answers import json_bytes
from api.audited import AuditedRequests
from api.debugging.history import History
from api.debugging.moment import Moment, moment
from api.debugging.steps import Difference, Step, Steps, difference
from api.endpoints import query
from api.pages import Freshness, Limit, Position
from api.resources import resources
from api.routing import Route, conversation_id_of

if TYPE_CHECKING:
    from domain.scope import Scope

CONVERSATION = "/v1/conversations/{conversation_id}"


class StateQuery(Freshness):
    """A seq, 0 for before the first event; without one, the newest."""

    at: Position | None = None


class DiffQuery(Freshness):
    """Two seqs, in either order; without them, from before the first event to the newest."""

    model_config = ConfigDict(validate_by_name=True)

    from_seq: Position = Field(default=0, alias="from")
    to_seq: Position | None = Field(default=None, alias="to")


class StepsQuery(Freshness):
    """The first `limit` events after a seq."""

    after: Position = 0
    limit: Limit = 50


class StepPage(BaseModel):
    """Steps, ascending; fewer than asked for where they are large. `next_cursor` is the next page's `after`."""

    items: list[Step]
    next_cursor: int | None


@query(f"{CONVERSATION}/state", StateQuery, answer=Moment)
async def get_state(request: web.Request, asked: StateQuery, scope: Scope) -> web.Response:
    """Show a conversation as it was right after one of its events.

    Its state, what the log then owed, what the model would have been sent, and what people saw: made of the log alone.
    """
    history = await _history(request, scope)
    return await _answer(await moment(history, asked.at, default_model=resources(request).settings.model))


@query(f"{CONVERSATION}/diff", DiffQuery, answer=Difference)
async def get_diff(request: web.Request, asked: DiffQuery, scope: Scope) -> web.Response:
    """Return the JSON Patch that leads from the state at one event to that at another."""
    history = await _history(request, scope)
    return await _answer(await difference(history, asked.from_seq, asked.to_seq))


@query(f"{CONVERSATION}/steps", StepsQuery, answer=StepPage)
async def list_steps(request: web.Request, asked: StepsQuery, scope: Scope) -> web.Response:
    """Go through a conversation event by event: the patch that each made, and what the log then owed."""
    history = await _history(request, scope)
    last_seq = await history.last_seq()
    items = await (await Steps.after(history, asked.after)).next(asked.limit)
    more = items and items[-1].seq < last_seq
    return await _answer(StepPage(items=items, next_cursor=items[-1].seq if more else None))


async def _history(request: web.Request, scope: Scope) -> History:
    have, conversation_id = resources(request), conversation_id_of(request)
    await have.conversations.authorise(conversation_id, scope)
    return History(have.event_store, conversation_id, AuditedRequests(have.database))


async def _answer(value: Any) -> web.Response:
    """Answer with what may be large: others are served while its JSON is written."""
    return web.Response(body=await asyncio.to_thread(json_bytes, value), content_type="application/json")


ROUTES: tuple[Route, ...] = (get_state, get_diff, list_steps)
