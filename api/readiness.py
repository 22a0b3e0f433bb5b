"""Whether what the server works with is fit to work: asked by health checks and by metrics."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from aiohttp import web
from psycopg import OperationalError

from api.resources import RESOURCES
from domain.event_store import StoreError
from infra.database import DatabaseUnavailable
from projections.leading import PAUSED
from projections.status import projection_statuses

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from api.resources import Resources

Found = TypeVar("Found")

PATIENCE_S = 2.0
MOST_LAG_S = 30.0
"""A read model whose oldest waiting event is older does not keep up."""
OUTAGES = (TimeoutError, StoreError, DatabaseUnavailable, OperationalError)


MOST_AGE_S = 1.0
"""How old an answer about the read models may be: anybody may ask, and it takes a look into the log."""


@dataclass(slots=True)
class Standing:
    """How things stand: what is `unready` and why, the log's head and the read models where they could be asked.

    `degraded` are read models that are as they should not be, by name, while the process is fit to work.
    """

    unready: dict[str, str] = field(default_factory=dict)
    degraded: dict[str, str] = field(default_factory=dict)
    head: int | None = None
    projections: list[dict[str, Any]] = field(default_factory=list)


class Statuses:
    """How the read models stand, looked up at most once a second however many ask."""

    def __init__(self, have: Resources) -> None:
        self._have, self._at = have, 0.0
        self._found: list[dict[str, Any]] | None = None
        self._asking = asyncio.Lock()

    async def recent(self) -> list[dict[str, Any]]:
        """Return the items of `projection_statuses`; raises as that does."""
        clock = asyncio.get_running_loop().time
        async with self._asking:
            if self._found is None or clock() - self._at >= MOST_AGE_S:
                async with self._have.database.connection() as connection:
                    now = self._have.conversations.clock.now()
                    self._found = await projection_statuses(connection, self._have.event_store, now=now)
                self._at = clock()
            return self._found


STATUSES: web.AppKey[Statuses] = web.AppKey("statuses", Statuses)


async def standing(app: web.Application) -> Standing:
    """Ask log, database and read models, each for at most two seconds."""
    have, found = app[RESOURCES], Standing()
    head, pinged, projections = await asyncio.gather(
        _asked("log", have.event_store.head(), found),
        _asked("database", _ping(have), found),
        _asked("projections", app[STATUSES].recent(), found),
    )
    found.head = head
    if pinged is not None and projections is not None:
        found.projections = projections
        _judge(projections, {one.name for one in have.projections}, found)
    return found


def _judge(projections: list[dict[str, Any]], ours: set[str], found: Standing) -> None:
    """Say which read models do not keep up, and what else is wrong with those that this process knows."""
    late = []
    for one in projections:
        if one["name"] not in ours:
            continue
        if one["status"] == PAUSED:
            found.degraded[one["name"]] = "paused"
        elif one["lag_seconds"] is None or one["lag_seconds"] > MOST_LAG_S:
            late.append(one["name"])
        elif one["parked"]:
            found.degraded[one["name"]] = f"parked conversations: {one['parked']}"
    if late:
        found.unready["projections"] = f"behind: {', '.join(late)}"


async def _asked(part: str, question: Awaitable[Found], found: Standing) -> Found | None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await question
    except OUTAGES:
        found.unready[part] = "does not answer"
        return None


async def _ping(have: Resources) -> bool:
    async with have.database.connection() as connection:
        await connection.execute("select 1")
    return True
