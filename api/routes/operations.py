"""What administrators watch and do: how the read models stand, what they have parked, and what the process measures."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aiohttp import hdrs, web
from pydantic import BaseModel

from api.answers import json_answer
from api.endpoints import operation, query
from api.errors import NotFound
from api.pages import Limit, PageOf
from api.queries import NoParameters
from api.readiness import standing
from api.resources import projection_of, resources
from api.routes.rebuilds import RebuildItem
from api.routing import Route
from api.telemetry import CONTENT_TYPE, telemetry_of
from domain.errors import ConversationNotFound
from infra.long_loans import LongLoans
from projections.parked import list_parked
from projections.pausing import pause, resume
from projections.retrying import retry
from projections.status import projection_statuses

if TYPE_CHECKING:
    from domain.scope import Scope

PROJECTION = "/v1/projections/{name}"


class ProjectionItem(BaseModel):
    """How a read model stands; its lag is unknown (null) if it never ran, `lag_events` also from 1,000 on.

    `status` is `new`, `running`, `failing`, `paused`, or `waiting` while no process leads it.
    `parked` counts conversations whose events wait, `skipped_position` is that of the first event of a type that was
    not known.
    """

    name: str
    version: int
    generation: int
    status: str
    position: int
    lag_events: int | None
    lag_seconds: float | None
    parked: int
    skipped_position: int | None
    rebuild: RebuildItem | None
    error: str | None


class Projections(BaseModel):
    """All read models."""

    items: list[ProjectionItem]


class RetriedProjection(ProjectionItem):
    """How a read model stands after `retried` of its parked conversations were folded."""

    retried: int


class ParkedQuery(NoParameters):
    """One page of what is parked."""

    cursor: str | None = None
    limit: Limit = 50


class ParkedItem(BaseModel):
    """A conversation of which a read model has folded nothing from event `seq` on: so many events are `waiting`."""

    conversation_id: UUID
    seq: int
    position: int
    event_id: UUID
    type: str
    error: str
    attempts: int
    waiting: int
    since: datetime
    tried_at: datetime


@query("/v1/projections", NoParameters, answer=Projections, access="admin")
async def list_projections(request: web.Request, _asked: NoParameters, _scope: Scope) -> web.Response:
    """List the read models and how far each is behind the log."""
    return json_answer(Projections.model_validate({"items": await _statuses(request)}))


@query(f"{PROJECTION}/parked", ParkedQuery, answer=PageOf[ParkedItem], access="admin")
async def list_parked_conversations(request: web.Request, asked: ParkedQuery, scope: Scope) -> web.Response:
    """List the conversations of the tenant that a read model has parked, oldest first.

    A page may be shorter than its limit, or empty, and have a next one: other tenants' are left out of it.
    """
    have = resources(request)
    await _status(request)
    async with have.database.connection() as connection:
        page = await list_parked(connection, request.match_info["name"], cursor=asked.cursor, limit=asked.limit)
    items = [item for item in page.items if await _may_read(request, scope, UUID(item["conversation_id"]))]
    return json_answer({"items": items, "next_cursor": page.next_cursor})


@operation("POST", f"{PROJECTION}/pause", NoParameters, answers={200: ProjectionItem})
async def pause_projection(request: web.Request, _asked: NoParameters) -> web.Response:
    """Hold a read model where it is, also over restarts, until it is resumed."""
    async with resources(request).database.connection() as connection:
        await pause(connection, request.match_info["name"])
    return json_answer(await _status(request))


@operation("POST", f"{PROJECTION}/resume", NoParameters, answers={200: ProjectionItem})
async def resume_projection(request: web.Request, _asked: NoParameters) -> web.Response:
    """Let a paused read model go on."""
    async with resources(request).database.connection() as connection:
        await resume(connection, request.match_info["name"])
    return json_answer(await _status(request))


@operation("POST", f"{PROJECTION}/retry", NoParameters, answers={200: RetriedProjection})
async def retry_projection(request: web.Request, _asked: NoParameters) -> web.Response:
    """Fold the parked conversations of a read model again; those that are refused again stay parked."""
    have = resources(request)
    done = await retry(LongLoans(have.database), have.event_store, projection_of(request))
    item = await _status(request)
    return json_answer(RetriedProjection(**item.model_dump(), retried=done.retried))


async def metrics(request: web.Request) -> web.Response:
    """Measurements in Prometheus' format."""
    telemetry = telemetry_of(request)
    telemetry.take(await standing(request.app))
    return web.Response(body=telemetry.exposition(), headers={hdrs.CONTENT_TYPE: CONTENT_TYPE})


async def _statuses(request: web.Request) -> list[dict[str, Any]]:
    have = resources(request)
    async with have.database.connection() as connection:
        return await projection_statuses(connection, have.event_store, now=have.conversations.clock.now())


async def _status(request: web.Request) -> ProjectionItem:
    """Return how the read model of the path stands; raises `NotFound`."""
    for found in await _statuses(request):
        if found["name"] == request.match_info["name"]:
            return ProjectionItem.model_validate(found)
    raise NotFound


async def _may_read(request: web.Request, scope: Scope, conversation_id: UUID) -> bool:
    try:
        await resources(request).conversations.authorise(conversation_id, scope)
    except ConversationNotFound:
        return False
    return True


ROUTES: tuple[Route, ...] = (
    list_projections,
    list_parked_conversations,
    pause_projection,
    resume_projection,
    retry_projection,
    Route(method="GET", path="/metrics", handler=metrics, access="admin", media_type="text/plain"),
)
