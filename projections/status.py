"""How projections stand: positions, errors, and how far they lag behind the log."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import from_json

from projections.feed import PREFIXES
from projections.reading import fetch

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from domain.event_store import EventStore

COUNTED = 1_000
PAGE = 100
SELECT = """
select name, version, generation, status, position, updated_at, error, skipped_position
from projections order by name
"""


class Lag(NamedTuple):
    """How far behind: events, None from 1,000 on, and the age in seconds of the oldest, 0 if there is none."""

    lag_events: int | None
    lag_seconds: float | None


async def projection_statuses(connection: AsyncConnection, store: EventStore, *, now: datetime) -> list[dict[str, Any]]:
    """Return how each projection stands; the lag of one that never ran is unknown, not 0. Raises `StoreError`."""
    found = await fetch(connection, SELECT, {})
    lags = {position: await _lag(store, position, now) for position in {row["position"] for row in found}}
    return [
        {**row, **(Lag(None, None) if row["status"] == "new" else lags[row["position"]])._asdict()} for row in found
    ]


async def _lag(store: EventStore, position: int, now: datetime) -> Lag:
    counted, seconds = 0, 0.0
    while counted < COUNTED:
        page = await store.read_all(position, limit=PAGE, prefixes=PREFIXES)
        if page and not counted:
            oldest = datetime.fromisoformat(from_json(page[0].metadata)["occurred_at"])
            seconds = max(0.0, (now - oldest).total_seconds())
        counted += len(page)
        if len(page) < PAGE:
            return Lag(counted, seconds)
        position = page[-1].position
    return Lag(None, seconds)
