"""Reading from read models that are as new as the caller asks for."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from api.resources import RESOURCES, resources
from commands.ports import NotCaughtUp
from projections.positions import Positions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from psycopg import AsyncConnection

    from api.pages import Freshness

POSITIONS = web.AppKey("positions", Positions)


async def follow_positions(app: web.Application) -> AsyncIterator[None]:
    """Know how far the read models are, for as long as the application runs (a `cleanup_ctx`)."""
    app[POSITIONS] = Positions(app[RESOURCES].database)
    following = asyncio.create_task(app[POSITIONS].run(), name="positions of read models")
    yield
    following.cancel()
    await asyncio.wait({following})


@asynccontextmanager
async def reading(request: web.Request, asked: Freshness, *read_models: str) -> AsyncIterator[AsyncConnection]:
    """Lend a connection as soon as these read models have reached `min_position`; raises `NotCaughtUp` after `wait_ms`.

    Name every read model that the query looks into: ``conversations`` too where it says what is visible.
    """
    position, wait_s = asked.min_position, asked.wait_ms / 1000
    if position is not None and not await request.app[POSITIONS].wait(read_models, position, wait_s):
        raise NotCaughtUp(f"the read model has not reached position {position} yet; try again")
    async with resources(request).database.connection() as connection:
        yield connection
