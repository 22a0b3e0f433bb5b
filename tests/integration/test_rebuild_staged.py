"""Rebuilds and checks where the log is not in PostgreSQL: from a copy that nothing is left of."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from infra.database import Database
from infra.eventstoredb.store import EventStoreDBEventStore
from infra.memory_event_store import MemoryEventStore
from infra.staged_log import staged_for_oneself
from projections.catalog import PROJECTIONS
from projections.conversations import CONVERSATIONS
from projections.rebuild import run
from projections.rebuild.ordered_log import Slice
from projections.rebuild.run import rebuild
from projections.schema import ensure_schema
from tests.support.eventstoredb import Double
from tests.support.projecting import interleaved
from tests.support.random_log import random_log, with_summaries
from tests.support.read_side import ReadSide
from tests.support.rebuilding import assert_as_folded, assert_no_trace, delete_both, differences, workshop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from domain.event_store import EventStore

TEMPORARY = "select relname from pg_class where relpersistence = 't' and relname like '%staged%'"


@pytest.fixture(params=["memory", "eventstoredb"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[EventStore]:
    if request.param == "memory":
        yield MemoryEventStore()
        return
    async with Double() as double, EventStoreDBEventStore(double.uri) as store:
        yield store


@pytest.fixture
async def read_side(database_url: str, store: EventStore) -> AsyncIterator[ReadSide]:
    async with Database(database_url) as database:
        async with database.connection() as connection:
            await ensure_schema(connection, PROJECTIONS)
        yield ReadSide(store, database, PROJECTIONS)


async def test_r4_what_a_staged_log_makes_is_what_live_projection_makes(
    read_side: ReadSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SLICE_EVENTS", 50)
    chance = random.Random(11)
    logs = [with_summaries(random_log(chance), chance) for _ in range(6)]
    async with read_side.projecting():
        await read_side.append(interleaved(logs, chance))
        await delete_both(read_side.store, logs[0][0].stream)
        await read_side.reached(await read_side.store.head())
        assert await differences(read_side) == []
        await rebuild(workshop(read_side), PROJECTIONS)
        await read_side.reached(await read_side.append(random_log(chance)))
        assert await differences(read_side) == []
        await assert_as_folded(read_side)
    await read_side.execute("update conversations set title = 'planted'")
    assert len(await differences(read_side, CONVERSATIONS)) == len(logs)
    await assert_no_trace(read_side)
    assert await read_side.execute(TEMPORARY) == []


async def test_p3_what_was_deleted_after_it_was_copied_is_forgotten(read_side: ReadSide) -> None:
    log = random_log(random.Random(12))
    await read_side.append(log)
    everything = Slice(None, None, 0)
    async with staged_for_oneself(read_side.database, read_side.store) as staged:
        assert sum([len(page) async for page in staged.read(everything, await read_side.store.head())]) == len(log)
        await read_side.store.delete(log[0].stream)
        [[tombstone]] = [page async for page in staged.read(everything, await read_side.store.head())]
        assert tombstone.stream == log[0].stream
