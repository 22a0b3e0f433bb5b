"""One line of log and one measurement a request, under an id that the caller may choose."""

from __future__ import annotations

import logging
import re
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING
from uuid import uuid4

from aiohttp import web

from api.routing import route_of
from api.telemetry import telemetry_of

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

logger = logging.getLogger(__name__)

HEADER = "X-Request-Id"
REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The request that the current task works for."""
_ACCEPTABLE = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)


@web.middleware
async def correlate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Run the request under its id; neither the log nor the metrics hold anything of its content."""
    given = request.headers.get(HEADER, "")
    REQUEST_ID.set(given if _ACCEPTABLE.fullmatch(given) else uuid4().hex)
    route = route_of(request)
    path = route.path if route else "(none)"
    began = time.perf_counter()
    status = 499  # the caller went away
    try:
        with telemetry_of(request).in_progress(route):
            response = await handler(request)
        status = response.status
        return response
    finally:
        took = time.perf_counter() - began
        telemetry_of(request).finished(request.method, route, status, took)
        logger.info(
            "%s %s answered %d",
            request.method,
            path,
            status,
            extra={
                "action": "request",
                "method": request.method,
                "route": path,
                "status": status,
                "milliseconds": round(took * 1000, 1),
                "request_id": REQUEST_ID.get(),
            },
        )


async def name_request(request: web.Request, response: web.StreamResponse) -> None:
    """Return the id to callers who chose one, and with errors of ours (an `on_response_prepare` signal).

    No other answer carries it, so that what a caller may not see looks the same as what does not exist.
    """
    if (HEADER in request.headers or response.status >= 500) and (request_id := REQUEST_ID.get()):
        response.headers[HEADER] = request_id
