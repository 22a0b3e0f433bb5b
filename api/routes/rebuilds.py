"""What administrators ask of rebuilds: make a read model anew while it serves, or give that up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel

from api.answers import json_answer
from api.endpoints import operation
from api.errors import NotFound
from api.queries import NoParameters
from api.resources import projection_of, resources
from projections.rebuild.jobs import cancel, want
from projections.rebuild.progress import rebuild_progress

if TYPE_CHECKING:
    from aiohttp import web

    from api.routing import Route

PATH = "/v1/projections/{name}/rebuild"


class RebuildQuery(NoParameters):
    """`fast` uses all processors, not only one."""

    fast: bool = False


class RebuildItem(BaseModel):
    """How far a rebuild is: events folded and in all, events per second, seconds until all are folded if known.

    `error` is what stopped it; it will be tried again.
    """

    done: int
    total: int
    rate: float
    eta_s: float | None
    error: str | None


class Rebuild(BaseModel):
    """The rebuild of a read model; null once it is over."""

    name: str
    rebuild: RebuildItem | None


@operation("POST", PATH, RebuildQuery, answers={202: Rebuild})
async def rebuild_projection(request: web.Request, asked: RebuildQuery) -> web.Response:
    """Make a read model anew from the whole log; the old one serves until the new one takes its place.

    A process with the role `projector` does it. 409 if it is being rebuilt already.
    """
    projection = projection_of(request)
    async with resources(request).database.connection() as connection:
        await want(connection, [projection], fast=asked.fast)
    return await _answered(request)


@operation("DELETE", PATH, NoParameters, answers={202: Rebuild})
async def cancel_rebuild(request: web.Request, _asked: NoParameters) -> web.Response:
    """Give a rebuild up, with those that share its pass over the log; nothing of it is left. 404 if there is none."""
    async with resources(request).database.connection() as connection:
        if not await cancel(connection, request.match_info["name"]):
            raise NotFound
    return await _answered(request)


async def _answered(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    async with resources(request).database.connection() as connection:
        progress = (await rebuild_progress(connection)).get(name)
    return json_answer({"name": name, "rebuild": progress and progress._asdict()}, 202)


ROUTES: tuple[Route, ...] = (rebuild_projection, cancel_rebuild)
