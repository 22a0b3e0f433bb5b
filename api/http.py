"""The HTTP application: the route table behind its middlewares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import hdrs, web

from api.auth import authenticate
from api.correlation import correlate, name_request
from api.cors import allow_origin, answer_preflights
from api.problems import answer_problems, note_start
from api.readiness import STATUSES, Statuses
from api.reading import follow_positions
from api.resources import RESOURCES
from api.routes import (
    conversations,
    debugging,
    documentation,
    events,
    fork,
    health,
    messages,
    model_calls,
    operations,
    page,
    rebuilds,
    summaries,
    tool_calls,
    trace,
    usage,
    what_if,
)
from api.routing import RouteTable
from api.telemetry import TELEMETRY, Telemetry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.resources import Resources
    from api.routing import Route

ROUTES: tuple[Route, ...] = (
    *conversations.ROUTES,
    *messages.ROUTES,
    *tool_calls.ROUTES,
    *events.ROUTES,
    *fork.ROUTES,
    *summaries.ROUTES,
    *usage.ROUTES,
    *model_calls.ROUTES,
    *debugging.ROUTES,
    *trace.ROUTES,
    *what_if.ROUTES,
    *operations.ROUTES,
    *rebuilds.ROUTES,
    *health.ROUTES,
    *documentation.ROUTES,
    *page.ROUTES,
)


def build_app(resources: Resources, more: Iterable[Route] = ()) -> web.Application:
    """Make the application of what is already open; `more` are the routes that other parts bring, such as streams."""
    app = web.Application(
        middlewares=(correlate, answer_problems, answer_preflights, authenticate),
        client_max_size=resources.settings.max_body_bytes + 1,  # aiohttp refuses what is as large as this
    )
    app[RESOURCES] = resources
    app[TELEMETRY] = Telemetry()
    app[STATUSES] = Statuses(resources)
    RouteTable((*ROUTES, *more)).add_to(app)
    app.cleanup_ctx.append(follow_positions)
    app.on_response_prepare.extend((note_start, name_request, allow_origin, _be_private))
    return app


async def _be_private(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.setdefault(hdrs.CACHE_CONTROL, "no-store")
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    response.headers[hdrs.SERVER] = "rejoinder"
