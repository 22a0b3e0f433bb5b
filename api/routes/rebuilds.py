"""What administrators ask of rebuilds: make a read model anew while it serves, or give that up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel

from api.answers import json_answer
from api.errors import NotFound
from api.queries import NoParameters, read_query
from api.resources import resources
from api.routing import Route
from projections.rebuild.jobs import cancel, want
from projections.rebuild.progress import rebuild_progress

if TYPE_CHECKING:
    from aiohttp import web

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


async def rebuild_projection(request: web.Request) -> web.Response:
    """Make a read model anew from the whole log; the old one serves until the new one takes its place.

    A process with the role `projector` does it. 409 if it is being rebuilt already.
    """
    asked = read_query(request, RebuildQuery)
    have, name = resources(request), request.match_info["name"]
    projection = next((one for one in have.projections if one.name == name), None)
    if projection is None:
        raise NotFound
    async with have.database.connection() as connection:
        await want(connection, [projection], fast=asked.fast)
    return await _answered(request, name, 202)


async def cancel_rebuild(request: web.Request) -> web.Response:
    """Give a rebuild up, with those that share its pass over the log; nothing of it is left. 404 if there is none."""
    read_query(request, NoParameters)
    name = request.match_info["name"]
    async with resources(request).database.connection() as connection:
        if not await cancel(connection, name):
            raise NotFound
    return await _answered(request, name, 202)


async def _answered(request: web.Request, name: str, status: int) -> web.Response:
    async with resources(request).database.connection() as connection:
        progress = (await rebuild_progress(connection)).get(name)
    return json_answer({"name": name, "rebuild": progress and progress._asdict()}, status)


ROUTES: tuple[Route, ...] = (
    Route(
        method="POST",
        path=PATH,
        handler=rebuild_projection,
        query=RebuildQuery,
        access="admin",
        answers={202: Rebuild},
    ),
    Route(method="DELETE", path=PATH, handler=cancel_rebuild, access="admin", answers={202: Rebuild}),
)
