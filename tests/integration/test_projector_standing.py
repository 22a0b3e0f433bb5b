"""How read models stand when something is amiss: nobody leads them, makes them anew, or has them any more."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from projections.dropping import StillLed, drop
from projections.projection import Projection
from projections.rebuild import jobs
from projections.rebuild.progress import rebuild_progress
from projections.usage import USAGE
from tests.support.given import asked, claimed, closed, history, said, started, stored
from tests.support.read_side import LOOK_EVERY_S, ReadSide, open_read_side
from tests.support.rebuilding import assert_no_trace
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from projections.event import Event
    from projections.projection import Rows

TURN = [stored(event) for event in history(started(), asked(), claimed(), said(), closed())]


def fold(rows: Rows, events: Sequence[Event]) -> None:
    """Keep the newest event."""
    for event in events:
        rows.put({"seq": event.seq})


NEWEST = Projection(name="newest", version=1, columns={"seq": "int not null"}, key=(), fold=fold)


@pytest.fixture
async def read_side(database_url: str) -> AsyncIterator[ReadSide]:
    async with open_read_side(database_url, [USAGE]) as read_side:
        yield read_side


async def standing(read_side: ReadSide) -> dict[str, Any]:
    [item] = (await read_side.statuses()).values()
    return item


async def test_a_projection_that_nobody_leads_says_that_it_waits(read_side: ReadSide) -> None:
    async with read_side.projecting():
        await read_side.reached(await read_side.append(TURN))
        assert (await standing(read_side))["status"] == "running"
    async with asyncio.timeout(PATIENCE_S):  # a lease that could not be handed back in time runs out
        while (await standing(read_side))["status"] != "waiting":  # noqa: ASYNC110 - the time tells nobody of it
            await asyncio.sleep(LOOK_EVERY_S)


async def test_a_rebuild_that_nobody_makes_any_more_has_no_rate_but_what_is_done_stays(read_side: ReadSide) -> None:
    await read_side.append(TURN)
    lease = "insert into leases values ('rebuild:usage', 'somebody', 1, clock_timestamp() + interval '1 minute')"
    await read_side.execute(lease)
    async with read_side.database.connection() as connection:
        job = await jobs.take(connection, [USAGE], fast=False)
        await connection.execute("update rebuilds set began_at = began_at - interval '10 s'")
        await connection.execute(
            "insert into rebuild_slices values (%s, 1, 'a', 'b', 100), (%s, 2, 'b', 'c', 900)", [job.id, job.id]
        )
        await connection.execute("update rebuild_slices set done = number = 1")
        made = (await rebuild_progress(connection))["usage"]
        assert made.rate > 0
        assert made.eta_s is not None
        await connection.execute("update leases set until = clock_timestamp()")
        left = (await rebuild_progress(connection))["usage"]
    assert (left.done, left.total, left.rate, left.eta_s) == (100, 1000, 0.0, None)


async def test_columns_that_changed_under_the_same_version_are_named_as_what_is_wrong(database_url: str) -> None:
    def fold_more(rows: Rows, events: Sequence[Event]) -> None:
        for event in events:
            rows.put({"seq": event.seq, "kind": event.type})

    changed = replace(NEWEST, columns={"seq": "int not null", "kind": "text"}, fold=fold_more)
    async with open_read_side(database_url, [NEWEST]):
        pass
    async with open_read_side(database_url, [changed]) as read_side, read_side.projecting():
        await read_side.append(TURN)
        await read_side.until("select 1 from projections where status = 'failing'")
        error = (await standing(read_side))["error"]
    assert error == "UndefinedColumn (42703): when columns of a projection change, its version has to grow"


async def test_what_a_projection_that_is_gone_has_left_can_be_dropped_and_is_made_anew(database_url: str) -> None:
    async with open_read_side(database_url, [NEWEST]) as read_side:
        async with read_side.projecting():
            await read_side.reached(await read_side.append(TURN))
        async with read_side.database.connection() as connection:
            await connection.execute("update leases set until = clock_timestamp() + interval '1 hour'")
            with pytest.raises(StillLed, match="a running server"):
                await drop(connection, "newest")
            await connection.execute("update leases set until = '-infinity'")
            await jobs.want(connection, [NEWEST])
            assert await drop(connection, "newest")
            assert not await drop(connection, "newest")
        await assert_no_trace(read_side)
        assert await read_side.execute("select to_regclass('newest')") == [(None,)]
    async with open_read_side(database_url, [NEWEST]) as read_side, read_side.projecting():
        await read_side.reached(5)
        assert [row["seq"] for row in (await read_side.rows(NEWEST)).values()] == [5]
