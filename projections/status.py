"""How projections stand: positions, what is parked or made anew, errors, and how far they lag behind the log."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import from_json

from domain.wire import PREFIXES
from projections.reading import fetch
from projections.rebuild.progress import rebuild_progress

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from psycopg import AsyncConnection

    from domain.event_store import EventStore, StoredEvent

COUNTED = 1_000
PAGE = 100
# who died, or waits for a database that was away, is given as long as taking over from him takes
SELECT = """
select name, version, generation, position,
    case when status in ('running', 'failing') and until is null then 'waiting' else status end as status,
    updated_at, coalesce(parked, 0) as parked, skipped_position,
    coalesce(projections.error, newest.error) as error
from projections
left join leases on key = 'projection:' || name and until > clock_timestamp() - interval '5 seconds'
left join (select projection, count(*) as parked from parked group by projection) as held on held.projection = name
left join (select projection, min(position) as skipped_position from skipped group by projection) as skips
    on skips.projection = name
left join lateral (
    select concat('parked at a ', type, ': ', parked.error) as error
    from parked where projection = name order by since desc limit 1
) as newest on true
order by name
"""


class Lag(NamedTuple):
    """How far behind: events, None from 1,000 on, and the age in seconds of the oldest, 0 if there is none."""

    lag_events: int | None
    lag_seconds: float | None


NEVER_RAN = Lag(None, None)


async def projection_statuses(connection: AsyncConnection, store: EventStore, *, now: datetime) -> list[dict[str, Any]]:
    """Return how each projection stands; the lag of one that never ran is unknown, not 0. Raises `StoreError`.

    Its status is `new`, `running`, `failing`, `paused`, or `waiting` for a process of its version to lead it.
    """
    found = await fetch(connection, SELECT, {})
    lags = await lags_of(store, {row["position"] for row in found if row["status"] != "new"}, now)
    rebuilds = {name: progress._asdict() for name, progress in (await rebuild_progress(connection)).items()}
    return [
        {
            **row,
            **(NEVER_RAN if row["status"] == "new" else lags[row["position"]])._asdict(),
            "rebuild": rebuilds.get(row["name"]),
        }
        for row in found
    ]


async def lags_of(store: EventStore, positions: Collection[int], now: datetime) -> dict[int, Lag]:
    """Return the lag of each position. However many there are, little more than 1,000 events are read.

    Only events of conversations count, not how far apart they are.
    """
    lags: dict[int, Lag] = {}
    upto, beyond = None, Lag(0, 0.0)
    for position in sorted(positions, reverse=True):
        lags[position] = beyond = await _lag(store, position, upto, beyond, now)
        upto = position
    return lags


async def _lag(store: EventStore, position: int, upto: int | None, beyond: Lag, now: datetime) -> Lag:
    """Count the events up to a position after which those `beyond` were counted."""
    page = await store.read_all(position, limit=1 if beyond.lag_events is None else PAGE, prefixes=PREFIXES)
    seconds = max(_age(page, now), beyond.lag_seconds or 0.0)
    counted = beyond.lag_events
    while counted is not None:
        news = [event for event in page if upto is None or event.position <= upto]
        counted = counted + len(news) if counted + len(news) < COUNTED else None
        if len(news) < PAGE:
            break
        page = await store.read_all(page[-1].position, limit=PAGE, prefixes=PREFIXES)
    return Lag(counted, seconds)


def _age(events: Sequence[StoredEvent], now: datetime) -> float:
    """Return the age of the oldest that says when it was appended; a tombstone does not."""
    for event in events:
        if occurred_at := from_json(event.metadata).get("occurred_at"):
            return max(0.0, (now - datetime.fromisoformat(occurred_at)).total_seconds())
    return 0.0
