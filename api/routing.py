"""The route table: what each route takes and answers, said once, for the router and for OpenAPI alike."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import BaseModel

CONVERSATION_ID = "{conversation_id:[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}}"
"""In a path: what is not written as a UUID is the id of nothing, and not found."""

Access = Literal["open", "caller", "admin"]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method of one path. `answers` maps a status to the model of its body, None for no JSON body.

    ``open`` routes need no key, ``admin`` ones that role. `stream` marks answers that last.
    """

    method: str
    path: str
    handler: Handler
    described_by: Callable[..., Any] | None = None
    """Whose name, module and docstring name, group and explain the route; None: the handler's."""
    access: Access = "caller"
    body: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    answers: Mapping[int, Any] = field(default_factory=lambda: {200: None})
    media_type: str = "application/json"
    stream: bool = False

    @property
    def name(self) -> str:
        """A name that no other route has."""
        return self._described.__name__

    @property
    def group(self) -> str:
        """What the route is about: its module in ``api.routes``, or the package that brings it."""
        _, package, *modules = self._described.__module__.split(".")
        return modules[0] if package == "routes" else package

    @property
    def explanation(self) -> tuple[str, str]:
        """Return the summary and what else there is to say."""
        summary, _, rest = (inspect.getdoc(self._described) or "").partition("\n")
        return summary, rest.strip()

    @property
    def _described(self) -> Callable[..., Any]:
        return self.described_by or self.handler


class RouteTable:
    """All routes of an application, found again by their handlers."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._by_handler = {route.handler: route for route in self.routes}

    def add_to(self, app: web.Application) -> None:
        """Make the application answer them."""
        app[ROUTES] = self
        for route in self.routes:
            app.router.add_route(route.method, route.path.replace("{conversation_id}", CONVERSATION_ID), route.handler)

    def of_handler(self, handler: Any) -> Route | None:
        """Return the route of a handler, None for the router's own (404 and 405)."""
        return self._by_handler.get(handler)


ROUTES: web.AppKey[RouteTable] = web.AppKey("routes")


def route_of(request: web.Request) -> Route | None:
    """Return the route that the request matched, None if none did."""
    return request.app[ROUTES].of_handler(request.match_info.handler)


def conversation_id_of(request: web.Request) -> UUID:
    """Return the conversation of the path; the router has let nothing but a UUID through."""
    return UUID(request.match_info["conversation_id"])
