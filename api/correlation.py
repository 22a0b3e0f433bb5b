"""One line of log and one measurement a request, under an id that the caller may choose."""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING
from uuid import uuid4

from aiohttp import web

from api.routing import route_of
from api.telemetry import telemetry_of
from commands.log_context import log_with, logged_ids

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

logger = logging.getLogger(__name__)

HEADER = "X-Request-Id"
_ACCEPTABLE = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)


@web.middleware
async def correlate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Run the request under its id; neither the log nor the metrics hold anything of its content."""
    given = request.headers.get(HEADER, "")
    log_with(request_id=given if _ACCEPTABLE.fullmatch(given) else uuid4().hex)
    if conversation_id := request.match_info.get("conversation_id"):
        log_with(conversation_id=conversation_id)
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
            },
        )


async def name_request(request: web.Request, response: web.StreamResponse) -> None:
    """Return the id to callers who chose one, and with errors of ours (an `on_response_prepare` signal).

    No other answer carries it, so that what a caller may not see looks the same as what does not exist.
    """
    if HEADER in request.headers or response.status >= 500:
        response.headers[HEADER] = request_id()


def request_id() -> str:
    """Return the id of the request that the current task works for."""
    return str(logged_ids().get("request_id", ""))
