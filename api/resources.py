"""What the HTTP API works with: opened elsewhere, handed in as one record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from api.errors import NotFound
from domain.hooks import NO_HOOKS
from projections.catalog import PROJECTIONS

if TYPE_CHECKING:
    from commands.conversations import Conversations
    from commands.ports import Partials
    from domain.event_store import EventStore
    from domain.hooks import Hooks
    from domain.tools import Toolset
    from infra.database import Database
    from infra.keys import ApiKeys
    from infra.settings import Settings
    from projections.projection import Projection


@dataclass(frozen=True, slots=True)
class Resources:
    """Everything is open for as long as the application runs; `keys` None means a loopback server without keys."""

    settings: Settings
    keys: ApiKeys | None
    event_store: EventStore
    database: Database
    conversations: Conversations
    partials: Partials
    toolset: Toolset
    projections: tuple[Projection, ...] = PROJECTIONS
    hooks: Hooks = NO_HOOKS


RESOURCES: web.AppKey[Resources] = web.AppKey("resources")


def resources(request: web.Request) -> Resources:
    """Return what the application works with."""
    return request.app[RESOURCES]


def projection_of(request: web.Request) -> Projection:
    """Return the read model that the path names; raises `NotFound`."""
    for projection in resources(request).projections:
        if projection.name == request.match_info["name"]:
            return projection
    raise NotFound
