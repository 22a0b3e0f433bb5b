"""The web page: a few static files, open to everybody, for they hold no data; what they show, they ask the API for."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from aiohttp import ETag, hdrs, web

from api.errors import NotFound
from api.routing import Route

FILES = Path(__file__).parent.parent / "page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
HEADERS = {
    # scripts from here only, none in the page itself, no string that becomes HTML, and nobody's frame
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "Permissions-Policy": "geolocation=(self), camera=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    hdrs.CACHE_CONTROL: "no-cache",
}


class PageFile(NamedTuple):
    """A file as it is sent; `tag` changes with its content."""

    content: bytes
    content_type: str
    tag: str


@cache
def page_files() -> dict[str, PageFile]:
    """Return the files by name."""
    found = {}
    for path in sorted(FILES.iterdir()):
        content = path.read_bytes()
        found[path.name] = PageFile(content, TYPES[path.suffix], hashlib.sha256(content).hexdigest()[:32])
    return found


async def web_page(request: web.Request) -> web.Response:
    """The web page, in which people talk with agents and decide what tools may do."""
    return _sent(request, "index.html")


async def web_page_file(request: web.Request) -> web.Response:
    """A script, style or picture of the web page."""
    return _sent(request, request.match_info["file"])


def _sent(request: web.Request, name: str) -> web.Response:
    file = page_files().get(name)
    if file is None:
        raise NotFound
    known = request.if_none_match or ()
    is_known = any(tag.value in (file.tag, "*") for tag in known)
    response = (
        web.Response(status=304, headers=HEADERS) if is_known else web.Response(body=file.content, headers=HEADERS)
    )
    if not is_known:
        response.content_type, response.charset = file.content_type, "utf-8"
    response.etag = ETag(file.tag)
    return response


ROUTES: tuple[Route, ...] = (
    Route(method="GET", path="/", handler=web_page, access="open", media_type="text/html"),
    Route(method="GET", path="/page/{file}", handler=web_page_file, access="open", media_type="text/javascript"),
)
