"""How far rebuilds are: events folded and in all, how fast, and how long it will take."""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString, NamedTuple

if TYPE_CHECKING:
    from psycopg import AsyncConnection

SELECT: LiteralString = """
select name, coalesce(done, 0)::float8, coalesce(total, 0)::float8, done_before::float8,
    extract(epoch from clock_timestamp() - began_at)::float8, error, holder is not null and exists (
        select from leases where key = 'rebuild:' || name and until > clock_timestamp())
from rebuilt_projections join rebuilds on rebuilds.id = rebuild left join lateral (
    select sum(events) filter (where slice.done) as done, sum(events) as total
    from rebuild_slices slice where slice.rebuild = rebuilds.id
) as slices on true
"""


class Progress(NamedTuple):
    """Events folded (`done`) and in all, events per second, and the seconds until all are folded; None: not known.

    `error` is what stopped it; it will be tried again. While nobody makes it the rate is 0.
    """

    done: int
    total: int
    rate: float
    eta_s: float | None
    error: str | None = None


async def rebuild_progress(connection: AsyncConnection) -> dict[str, Progress]:
    """Return the progress of each projection that is being rebuilt, or is to be, by name."""
    progress: dict[str, Progress] = {}
    for name, done, total, before, seconds, error, held in await (await connection.execute(SELECT)).fetchall():
        rate = (done - before) / seconds if held and seconds > 0 else 0.0
        eta_s = round((total - done) / rate, 1) if rate > 0 else None
        progress[name] = Progress(int(done), int(total), round(rate, 1), eta_s, None if held else error)
    return progress
