"""Whether what the server works with is fit to work: asked by health checks and by metrics."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from psycopg import OperationalError

from domain.event_store import StoreError
from infra.database import DatabaseUnavailable
from projections.status import projection_statuses

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from api.resources import Resources

Found = TypeVar("Found")

PATIENCE_S = 2.0
MOST_LAG_S = 30.0
"""A read model whose oldest waiting event is older does not keep up."""
OUTAGES = (TimeoutError, StoreError, DatabaseUnavailable, OperationalError)


@dataclass(slots=True)
class Standing:
    """How things stand: what is `unready` and why, the log's head and the read models where they could be asked."""

    unready: dict[str, str] = field(default_factory=dict)
    head: int | None = None
    projections: list[dict[str, Any]] = field(default_factory=list)


async def standing(have: Resources) -> Standing:
    """Ask log, database and read models, each for at most two seconds."""
    found = Standing()
    head, pinged, projections = await asyncio.gather(
        _asked("log", have.event_store.head(), found),
        _asked("database", _ping(have), found),
        _asked("projections", _statuses(have), found),
    )
    found.head = head
    if pinged is not None and projections is not None:
        found.projections = projections
        late = [one["name"] for one in projections if one["lag_seconds"] is None or one["lag_seconds"] > MOST_LAG_S]
        if late:
            found.unready["projections"] = f"behind: {', '.join(late)}"
    return found


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


async def _statuses(have: Resources) -> list[dict[str, Any]]:
    async with have.database.connection() as connection:
        return await projection_statuses(connection, have.event_store, now=have.conversations.clock.now())
