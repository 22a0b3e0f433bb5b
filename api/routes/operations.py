"""What administrators watch: how the read models stand, and what the process measures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import hdrs, web
from pydantic import BaseModel

from api.answers import json_answer
from api.endpoints import query
from api.queries import NoParameters
from api.readiness import standing
from api.resources import resources
from api.routing import Route
from api.telemetry import CONTENT_TYPE, telemetry_of
from projections.status import projection_statuses

if TYPE_CHECKING:
    from domain.scope import Scope


class ProjectionItem(BaseModel):
    """How a read model stands; its lag is unknown (null) if it never ran, `lag_events` also from 1,000 on."""

    name: str
    version: int
    generation: int
    status: str
    position: int
    lag_events: int | None
    lag_seconds: float | None
    parked: int = 0
    rebuild: None = None
    error: str | None


class Projections(BaseModel):
    """All read models."""

    items: list[ProjectionItem]


@query("/v1/projections", NoParameters, answer=Projections, access="admin")
async def list_projections(request: web.Request, _asked: NoParameters, _scope: Scope) -> web.Response:
    """List the read models and how far each is behind the log."""
    have = resources(request)
    async with have.database.connection() as connection:
        found = await projection_statuses(connection, have.event_store, now=have.conversations.clock.now())
    return json_answer(Projections.model_validate({"items": found}))


async def metrics(request: web.Request) -> web.Response:
    """Measurements in Prometheus' format."""
    telemetry = telemetry_of(request)
    telemetry.take(await standing(resources(request)))
    return web.Response(body=telemetry.exposition(), headers={hdrs.CONTENT_TYPE: CONTENT_TYPE})


ROUTES: tuple[Route, ...] = (
    list_projections,
    Route(method="GET", path="/metrics", handler=metrics, access="admin", media_type="text/plain"),
)
