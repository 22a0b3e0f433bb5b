"""Reading from read models that are as new as the caller asks for."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from uuid import UUID

from aiohttp import web

from api.auth import scope_of
from api.resources import RESOURCES, resources
from commands.ports import NotCaughtUp
from domain.errors import ConversationNotFound
from domain.scope import Scope
from projections.parked import ConversationParked, parked_before
from projections.pausing import refuse_paused
from projections.positions import Positions
from projections.versions import Versions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from psycopg import AsyncConnection

    from api.pages import Freshness

POSITIONS = web.AppKey("positions", Positions)
VERSIONS = web.AppKey("versions", Versions)


async def follow_positions(app: web.Application) -> AsyncIterator[None]:
    """Know how far the read models are, for as long as the application runs (a `cleanup_ctx`)."""
    app[POSITIONS] = Positions(app[RESOURCES].database)
    app[VERSIONS] = Versions(app[RESOURCES].projections)
    following = asyncio.create_task(app[POSITIONS].run(), name="positions of read models")
    yield
    following.cancel()
    await asyncio.wait({following})


@asynccontextmanager
async def reading(request: web.Request, asked: Freshness, *read_models: str) -> AsyncIterator[AsyncConnection]:
    """Lend a connection as soon as these read models have reached `min_position`; raises `NotCaughtUp` after `wait_ms`,
    or `ProjectionPaused`.

    Name every read model that the query looks into: ``conversations`` too where it says what is visible. Raises
    `ConversationParked` where what was asked for waits in one of them, `OtherVersion` for one that this code does not
    understand.
    """
    position, wait_s = asked.min_position, asked.wait_ms / 1000
    if position is not None and not await request.app[POSITIONS].wait(read_models, position, wait_s):
        async with resources(request).database.connection() as connection:
            await refuse_paused(connection, read_models)
        raise NotCaughtUp(f"the read model has not reached position {position} yet; try again")
    if position is not None:
        await _refuse_parked(request, read_models, position)
    database = resources(request).database
    async with database.connection() as connection, request.app[VERSIONS].reading(connection, *read_models):
        yield connection


async def _refuse_parked(request: web.Request, read_models: Collection[str], position: int) -> None:
    """Raise `ConversationParked` for the conversation of the path; for a list, for any that the caller may see."""
    have, asked = resources(request), request.match_info.get("conversation_id")
    async with have.database.connection() as connection:
        found = await parked_before(connection, read_models, position, UUID(asked) if asked else None)
    for parked in found:
        with suppress(ConversationNotFound):
            await have.conversations.authorise(parked, scope_of(request), Scope.may_resolve)
            raise ConversationParked(
                f"events of conversation {parked} are parked; without min_position its older rows are shown"
            )
