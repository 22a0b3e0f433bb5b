"""How far projections lag, counted in events of conversations on a log whose positions have gaps, at a bounded cost."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from domain.event_store import NewEvent
from infra.memory_event_store import MemoryEventStore
from projections.status import COUNTED, Lag, lags_of
from tests.support.given import NOW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from domain.event_store import StoredEvent


class GappedStore(MemoryEventStore):
    """Positions are far apart, as bytes of a file are; counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_events = 0

    async def read_all(self, after_position: int, *, limit: int, prefixes: Sequence[str] = ()) -> list[StoredEvent]:
        found = await super().read_all(after_position // GAP, limit=limit, prefixes=prefixes)
        self.read_events += len(found)
        return [replace(event, position=event.position * GAP) for event in found]


GAP = 137


async def filled(events: int, *, stream: str = "conversation-1") -> GappedStore:
    store = GappedStore()
    await add(store, events, stream)
    return store


async def add(store: GappedStore, events: int, stream: str, at: int = 0) -> None:
    new = []
    for number in range(at, at + events):
        metadata = json.dumps({"occurred_at": (NOW + timedelta(seconds=number)).isoformat()})
        new.append(NewEvent(UUID(int=number + len(stream) * 2**32), "user_msg", "{}", metadata))
    await store.append(stream, new, at)


async def test_lag_counts_events_not_positions_and_is_the_age_of_the_oldest() -> None:
    store = await filled(20)
    now = NOW + timedelta(seconds=30)

    lags = await lags_of(store, [20 * GAP, 17 * GAP, 0], now)

    assert lags == {20 * GAP: Lag(0, 0.0), 17 * GAP: Lag(3, 13.0), 0: Lag(20, 30.0)}


async def test_what_is_no_conversation_is_no_lag() -> None:
    store = await filled(3)
    await add(store, 50, "elsewhere-1")

    assert await lags_of(store, [3 * GAP, 2 * GAP], NOW) == {3 * GAP: Lag(0, 0.0), 2 * GAP: Lag(1, 0.0)}


async def test_a_tombstone_counts_and_has_no_age_of_its_own() -> None:
    store = await filled(3)
    await add(store, 1, "conversation-2")
    await store.delete("conversation-1")

    assert await lags_of(store, [0, 4 * GAP], NOW + timedelta(seconds=9)) == {0: Lag(2, 9.0), 4 * GAP: Lag(1, 0.0)}


@pytest.mark.parametrize("events", [COUNTED - 1, COUNTED, COUNTED + 1, 3 * COUNTED])
async def test_from_a_thousand_on_the_number_is_unknown_and_the_cost_does_not_grow(events: int) -> None:
    store = await filled(events)
    now = NOW + timedelta(seconds=10_000)

    lags = await lags_of(store, [at * GAP for at in range(0, events, events // 7)], now)

    assert lags[0] == Lag(events if events < COUNTED else None, 10_000.0)
    assert all(lag.lag_seconds == 10_000 - position // GAP for position, lag in lags.items())
    assert store.read_events <= COUNTED + 9 * 101
