"""The log of a conversation as it is."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aiohttp import web
from pydantic import BaseModel

from api.endpoints import query
from api.event_json import event_json
from api.pages import Freshness, Limit, Position
from api.resources import resources
from api.routing import Route, conversation_id_of
from domain.errors import ConversationNotFound
from domain.wire import stream_of

if TYPE_CHECKING:
    from domain.scope import Scope


class EventsQuery(Freshness):
    """An open interval of seqs; of more than `limit` events the newest are kept, with `oldest` the oldest."""

    after: Position = 0
    before: Position | None = None
    limit: Limit = 100
    oldest: bool = False


class EventItem(BaseModel):
    """An event as the log holds it."""

    seq: int
    position: int
    conversation_id: UUID
    type: str
    occurred_at: datetime
    data: dict[str, Any]
    metadata: dict[str, Any]


class EventPage(BaseModel):
    """Events, ascending; `next_cursor` is the seq for ``before``, with ``oldest`` for ``after``."""

    items: list[EventItem]
    next_cursor: int | None


@query("/v1/conversations/{conversation_id}/events", EventsQuery, answer=EventPage)
async def list_events(request: web.Request, asked: EventsQuery, scope: Scope) -> web.Response:
    """Read the log; it is always current."""
    have, conversation_id = resources(request), conversation_id_of(request)
    await have.conversations.authorise(conversation_id, scope)
    events = await have.event_store.read(
        stream_of(conversation_id), after=asked.after, before=asked.before, limit=asked.limit + 1, first=asked.oldest
    )
    if not events and not await have.event_store.read(stream_of(conversation_id), before=2):
        raise ConversationNotFound("no such conversation")  # whose it was is remembered longer than it lasts
    page = events[: asked.limit] if asked.oldest else events[-asked.limit :]
    cursor = (page[-1 if asked.oldest else 0].seq) if len(events) > len(page) else None
    items = b",".join(event_json(event) for event in page)
    body = b'{"items":[%b],"next_cursor":%b}' % (items, str(cursor or "null").encode())
    return web.Response(body=body, content_type="application/json")


ROUTES: tuple[Route, ...] = (list_events,)
