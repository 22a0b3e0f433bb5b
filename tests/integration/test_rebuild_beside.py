"""What goes on beside a rebuild: queries see one whole generation, and neither clock nor prices matter."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from api.rebuild_slices import Processes
from infra.settings import load_settings
from projections.catalog import PROJECTIONS
from projections.commands import COMMANDS
from projections.conversations import CONVERSATIONS
from projections.projection import NEVER, Projection
from projections.rebuild import run
from projections.rebuild.run import rebuild
from projections.schema import ensure_schema
from tests.support.projecting import interleaved
from tests.support.random_log import random_log
from tests.support.read_side import ReadSide, open_read_side
from tests.support.rebuilding import assert_as_folded, differences, workshop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from projections.event import Event
    from projections.projection import Rows

ROOT = Path(__file__).parents[2]
ANOTHER_TIME = ROOT / "tests" / "support" / "another_time"
COUNT = """
select (select count(conversation_id) from conversations), (select count(seq) from display_messages),
    count(tool_calls.seq) from tool_calls join conversations using (conversation_id)
"""


@pytest.fixture
async def read_side(database_url: str) -> AsyncIterator[ReadSide]:
    async with open_read_side(database_url) as read_side:
        chance = random.Random(31)
        await read_side.append(interleaved([random_log(chance) for _ in range(8)], chance))
        async with read_side.projecting():
            await read_side.reached(await read_side.store.head())
            yield read_side


async def test_r5_queries_see_a_whole_generation_all_the_time_also_prepared_ones(read_side: ReadSide) -> None:
    [before] = await read_side.execute(COUNT)
    asked = [0, 0, 0]
    done = asyncio.Event()

    async def query(who: int) -> None:
        async with await read_side.database.connect() as connection:
            while not done.is_set():
                cursor = await connection.execute(COUNT, prepare=True)
                assert await cursor.fetchall() == [before]
                asked[who] += 1

    async with asyncio.TaskGroup() as querying:
        for who in range(3):
            querying.create_task(query(who))
        rebuilds = 0
        while rebuilds < 3 or min(asked) <= 3:
            await rebuild(workshop(read_side), PROJECTIONS)
            rebuilds += 1
        done.set()


async def test_r8_what_was_written_is_read_through_the_swap(read_side: ReadSide) -> None:
    rebuilding = asyncio.create_task(rebuild(workshop(read_side), PROJECTIONS))
    chance = random.Random(32)
    while not rebuilding.done():
        [first, *_] = random_log(chance, steps=1)
        await read_side.reached(await read_side.append([first]), "conversations")
        conversation_id = first.stream.removeprefix("conversation-")
        assert await read_side.execute("select last_seq from conversations where conversation_id = %s", conversation_id)
    await rebuilding


async def test_r4_rebuilt_by_another_clock_and_without_a_price_list_the_rows_are_the_same(
    read_side: ReadSide, database_url: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.rebuild_process", database_url),
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ANOTHER_TIME), "TZ": "Pacific/Kiritimati", "PGTZ": "Asia/Kathmandu"},
    )
    assert await process.wait() == 0
    assert await read_side.execute("select distinct generation from projections") == [(2,)]
    await assert_as_folded(read_side)


async def test_several_processes_share_a_fast_rebuild(
    read_side: ReadSide, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SLICE_EVENTS", 50)
    names = [projection.name for projection in PROJECTIONS]
    processes = Processes(load_settings(), database_url, names)
    await rebuild(workshop(read_side), PROJECTIONS, spread=processes)
    assert await read_side.execute("select distinct generation from projections") == [(2,)]
    await assert_as_folded(read_side)


async def test_who_may_read_a_table_may_read_it_afterwards_and_its_indexes_keep_their_names(
    read_side: ReadSide,
) -> None:
    role = f"reader_{uuid4().hex}"
    indexes = "select indexname, indexdef from pg_indexes where tablename = 'conversations' order by 1"
    before = await read_side.execute(indexes)
    await read_side.execute(f"create role {role}")
    try:
        await read_side.execute(f"grant select on conversations to {role} with grant option")
        await rebuild(workshop(read_side), [CONVERSATIONS])
        granted = "select has_table_privilege(%s, 'conversations', 'select with grant option')"
        assert await read_side.execute(granted, role) == [(True,)]
        assert await read_side.execute(indexes) == before
    finally:
        await read_side.execute(f"drop owned by {role}; drop role {role}")


async def test_values_that_are_not_quite_of_their_columns_type_are_taken_as_live_projection_takes_them(
    read_side: ReadSide,
) -> None:
    def fold(rows: Rows, events: Sequence[Event]) -> None:
        for event in events:
            rows.put({"seq": event.seq, "share": event.seq / 3, "day": event.occurred_at.date(), "text": event.seq})

    projection = Projection(
        name="loose",
        version=1,
        columns={"seq": "int not null", "share": "numeric", "day": "date", "text": "text"},
        key=("seq",),
        open_while=NEVER,
        fold=fold,
    )
    strict = replace(projection, name="loose_text", columns={"seq": "int not null", "text": "text"}, fold=text_only)
    both = [projection, strict]
    async with read_side.database.connection() as connection:
        await ensure_schema(connection, both)
    live = ReadSide(read_side.store, read_side.database, both)
    async with live.projecting():
        await read_side.reached(await read_side.store.head(), *(one.name for one in both))
    assert await differences(live) == []
    before = [await live.rows(one) for one in both]
    await rebuild(workshop(live), both)
    assert [await live.rows(one) for one in both] == before
    assert await differences(live) == []
    assert await read_side.execute("select count(*) from parked") == [(0,)]


def text_only(rows: Rows, events: Sequence[Event]) -> None:
    for event in events:
        rows.put({"seq": event.seq, "text": event.seq})


async def test_what_depends_on_a_table_is_said_and_stops_the_swap(read_side: ReadSide) -> None:
    await read_side.execute("create view mine as select command_id from commands")
    with pytest.raises(Exception, match="other objects depend on it"):
        await rebuild(workshop(read_side), [COMMANDS])
    assert "other objects depend on it" in (await read_side.execute("select error from rebuilds"))[0][0]
    await read_side.execute("drop view mine")
    await rebuild(workshop(read_side), [COMMANDS])
    assert await differences(read_side) == []
