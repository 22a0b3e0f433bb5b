"""Rebuilds and checks of a test's read side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from api.rebuilding import make_workshop
from domain.wire import PREFIXES, kind_of, stream_of, summary_stream_of
from projections.verify import verify
from tests.support.projecting import fold_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from domain.event_store import EventStore
    from projections.projection import Projection, Row
    from projections.rebuild.run import Workshop
    from projections.verify import Verdict
    from tests.support.read_side import ReadSide

TRACES = (
    "select nspname from pg_namespace where nspname like 'rejoinder%'",
    "select name from rebuilt_projections",
    "select number from rebuild_slices",
    "select id from rebuilds",
    "select key from leases where key like 'rebuild:%' and until > clock_timestamp()",
)


def workshop(read_side: ReadSide) -> Workshop:
    """Return what a rebuild of these works with."""
    return make_workshop(read_side.database, read_side.store)


async def verdicts(read_side: ReadSide, *projections: Projection) -> list[Verdict]:
    """Check projections (all)."""
    async with workshop(read_side).open_log(None) as log:
        return await verify(read_side.database, log, projections or read_side.projections)


async def differences(read_side: ReadSide, *projections: Projection) -> list[str]:
    """Check projections (all) and return what differs, each in its words; nothing may be left out."""
    found = await verdicts(read_side, *projections)
    assert sum(verdict.differences for verdict in found) == sum(len(verdict.shown) for verdict in found)
    assert not any(verdict.parked for verdict in found)
    return [str(difference) for verdict in found for difference in verdict.shown]


async def assert_no_trace(read_side: ReadSide) -> None:
    """Expect that no rebuild is under way and none was left."""
    for query in TRACES:
        assert await read_side.execute(query) == [], query


async def assert_as_folded(read_side: ReadSide) -> None:
    """Expect every table to hold what a fold from scratch makes."""
    log = await read_side.store.read_all(0, limit=1_000_000, prefixes=PREFIXES)
    for projection in read_side.projections:
        made = without_void(projection, fold_whole(projection, log))
        assert without_void(projection, await read_side.rows(projection)) == made, projection.name


def without_void(projection: Projection, rows: Mapping[tuple[Any, ...], Row]) -> dict[tuple[Any, ...], Row]:
    """Leave out the rows without which the read model is as good."""
    return {key: row for key, row in rows.items() if projection.is_void is None or not projection.is_void(row)}


async def delete_both(store: EventStore, stream: str) -> None:
    """Delete a conversation, by one of its two streams, as is right: its own comes last."""
    _, one = kind_of(stream)
    assert one is not None
    await store.delete(summary_stream_of(one))
    await store.delete(stream_of(one))
