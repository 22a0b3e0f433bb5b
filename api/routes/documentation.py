"""The API's own description, open to everybody."""

from __future__ import annotations

from aiohttp import web

from api.answers import json_answer
from api.docs_page import CONTENT_SECURITY_POLICY, docs_page
from api.openapi import openapi_document
from api.routing import ROUTES as TABLE
from api.routing import Route


async def openapi(request: web.Request) -> web.Response:
    """This API in OpenAPI 3.1."""
    return json_answer(openapi_document(request.app[TABLE]))


async def docs(request: web.Request) -> web.Response:
    """This page."""
    page = docs_page(openapi_document(request.app[TABLE]))
    return web.Response(
        text=page, content_type="text/html", headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY}
    )


ROUTES: tuple[Route, ...] = (
    Route(method="GET", path="/openapi.json", handler=openapi, access="open"),
    Route(method="GET", path="/docs", handler=docs, access="open", media_type="text/html"),
)
