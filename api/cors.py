"""Cross-origin requests: pages of the origins in ``REJOINDER_CORS_ORIGINS`` may call the API and read its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import hdrs, web

from api.resources import resources

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

METHODS = "GET, POST, PATCH, DELETE"
REQUEST_HEADERS = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Request-Id"
ANSWER_HEADERS = "Location, Retry-After, X-Request-Id"
PREFLIGHT_SECONDS = "600"


@web.middleware
async def answer_preflights(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a browser's question before a cross-origin call; it never carries a key."""
    asks = request.method == hdrs.METH_OPTIONS and hdrs.ACCESS_CONTROL_REQUEST_METHOD in request.headers
    if not asks or not _is_friend(request):
        return await handler(request)
    return web.Response(
        status=204,
        headers={
            hdrs.ACCESS_CONTROL_ALLOW_METHODS: METHODS,
            hdrs.ACCESS_CONTROL_ALLOW_HEADERS: REQUEST_HEADERS,
            hdrs.ACCESS_CONTROL_MAX_AGE: PREFLIGHT_SECONDS,
        },
    )


async def allow_origin(request: web.Request, response: web.StreamResponse) -> None:
    """Let the page read this answer, streams and problems included (an `on_response_prepare` signal)."""
    if not resources(request).settings.cors_origins:
        return
    response.headers.add(hdrs.VARY, hdrs.ORIGIN)
    if _is_friend(request):
        response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = request.headers[hdrs.ORIGIN]
        response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = ANSWER_HEADERS


def _is_friend(request: web.Request) -> bool:
    return request.headers.get(hdrs.ORIGIN) in resources(request).settings.cors_origins
