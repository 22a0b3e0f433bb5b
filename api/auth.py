"""Who asks: a Bearer key gives the scope; a server without keys serves this machine's own programs and pages only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import hdrs, web

from api.errors import Forbidden, ForeignPage, Unauthenticated
from api.resources import resources
from api.routing import route_of
from domain.scope import LOCAL, Scope
from infra.settings import is_loopback

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

    from infra.keys import ApiKeys

SCOPE = web.RequestKey("scope", Scope)


def scope_of(request: web.Request) -> Scope:
    """Return the caller's scope; only routes that are not open have one."""
    return request[SCOPE]


@web.middleware
async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Find the caller's scope and check the route's role, before anything of the request is looked at."""
    keys = resources(request).keys
    if keys is None:
        _refuse_foreign_pages(request)
    route = route_of(request)
    if route is None or route.access != "open":
        scope = LOCAL if keys is None else _scope_of_key(request, keys)
        if route is not None and route.access == "admin" and not scope.is_admin:
            raise Forbidden("this needs a key with the role admin")
        request[SCOPE] = scope
    return await handler(request)


def _scope_of_key(request: web.Request, keys: ApiKeys) -> Scope:
    scheme, _, key = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    scope = keys.scope_of(key.strip()) if scheme.lower() == "bearer" else None
    if scope is None:
        raise Unauthenticated
    return scope


def _refuse_foreign_pages(request: web.Request) -> None:
    """Keep out what a browser on this machine could be tricked into: rebound names, and pages of other origins."""
    host = request.headers.get(hdrs.HOST, "").lower()
    name, _, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    if not is_loopback(name if name and port.isdigit() else host):
        raise ForeignPage("without an API keys file only the names of this machine itself are answered")
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is None or origin.lower() == f"{request.scheme}://{host}":
        return
    if origin not in resources(request).settings.cors_origins:
        raise ForeignPage("without an API keys file only pages of this server or of REJOINDER_CORS_ORIGINS may call it")
