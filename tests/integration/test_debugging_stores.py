"""Traces and what-ifs of random conversations are the same on both stores as in memory, and leave nothing there.

`REJOINDER_PROPERTY_RUNS` sets how many conversations are tried on each store (5).
"""

from __future__ import annotations

import os
import random
from itertools import groupby
from typing import TYPE_CHECKING

import pytest

from api.debugging.changes import Changes
from api.debugging.history import History, LoadedLog
from api.debugging.trace import trace
from api.debugging.turns import turns_around
from api.debugging.what_if import what_if
from domain.event_store import NewEvent
from domain.wire import conversation_of
from infra.eventstoredb import EventStoreDBEventStore
from infra.postgres_event_store import PostgresEventStore
from projections.event import Event
from tests.support.eventstoredb import Double
from tests.support.random_log import random_log, with_summaries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from domain.event_store import EventStore, StoredEvent

RUNS = int(os.environ.get("REJOINDER_PROPERTY_RUNS", "5"))


@pytest.fixture(params=["postgres", "eventstoredb"])
async def store(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[EventStore]:
    if request.param == "postgres":
        async with PostgresEventStore(database_url) as postgres:
            yield postgres
    else:
        async with Double() as double, EventStoreDBEventStore(double.uri) as eventstoredb:
            yield eventstoredb


async def remember(store: EventStore, log: list[StoredEvent]) -> None:
    """Append the events as they came, those of the two streams in turn."""
    for stream, events in groupby(log, key=lambda event: event.stream):
        news = list(events)
        records = [NewEvent(event.event_id, event.type, event.data, event.metadata) for event in news]
        await store.append(stream, records, news[0].seq - 1)


@pytest.mark.parametrize("seed", range(RUNS))
async def test_d3_on_every_store_as_in_memory_and_nothing_is_recorded(store: EventStore, seed: int) -> None:
    chance = random.Random(seed)
    log = random_log(chance, steps=60)
    conversation_id: UUID | None = conversation_of(log[0].stream)
    assert conversation_id is not None
    whole = with_summaries(log, chance)
    await remember(store, whole)
    stored = await store.read_all(0, limit=1_000)
    real = History(store, conversation_id, page=9)
    # the same events, with the positions of that store
    loaded = History(LoadedLog(sorted(stored, key=lambda event: (event.stream, event.seq))), conversation_id)

    for _ in range(4):
        drop = [chance.randrange(1, len(log) + 1)]
        asked = Changes(drop=drop, at=chance.choice((None, *range(drop[0], len(log) + 1))))
        assert await what_if(real, asked, default_model="m") == await what_if(loaded, asked, default_model="m")
        unchanged = await what_if(real, Changes(), default_model="m")
        assert (unchanged.patch, unchanged.view_patch, unchanged.impossible) == ([], [], [])
        wanted = chance.choice(log)
        around = await turns_around(store, conversation_id, wanted.event_id)
        in_all = [Event(event, conversation_id) for event in await store.read(wanted.stream)]
        assert trace([Event(event, conversation_id) for event in around], wanted.seq) == trace(in_all, wanted.seq)

    assert await store.read_all(0, limit=1_000) == stored
