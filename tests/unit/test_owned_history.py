"""The merged history of many conversations: whole, in the order of the log, and read only where it is."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from api.streams.owned_history import PAGE_EVENTS, history_of
from domain.event_store import NewEvent, StoredEvent
from domain.wire import stream_of
from infra.memory_event_store import MemoryEventStore
from projections.conversations import LogSpan

if TYPE_CHECKING:
    from collections.abc import Sequence


class CountingStore(MemoryEventStore):
    """Counts the events that were read."""

    def __init__(self) -> None:
        super().__init__()
        self.events_read = 0

    async def read(
        self, stream: str, *, after: int = 0, before: int | None = None, limit: int | None = None, first: bool = False
    ) -> list[StoredEvent]:
        events = await super().read(stream, after=after, before=before, limit=limit, first=first)
        self.events_read += len(events)
        return events


async def filled_store(chance: random.Random, conversations: int, appends: int) -> tuple[CountingStore, list[LogSpan]]:
    """Return a store of interleaved conversations, and where each of them is."""
    store = CountingStore()
    positions: dict[UUID, list[int]] = {}
    ids = [uuid4() for _ in range(conversations)]
    for number in range(appends):
        conversation_id = ids[min(chance.randrange(conversations), number)]
        known = positions.setdefault(conversation_id, [])
        new = [NewEvent(uuid4(), "user_msg", "{}", "{}") for _ in range(chance.randint(1, 4))]
        appended = await store.append(stream_of(conversation_id), new, len(known))
        known += range(appended.position - len(new) + 1, appended.position + 1)
    return store, [LogSpan(id_, places[0], places[-1], len(places)) for id_, places in positions.items()]


async def positions_of(store: MemoryEventStore, spans: Sequence[LogSpan], after: int, upto: int) -> list[int]:
    wanted = [span for span in spans if span.last_position > after]
    return [event.position async for event in history_of(store, wanted, after, upto)]


@pytest.mark.parametrize("seed", range(20))
async def test_w1_every_event_between_two_positions_comes_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    store, spans = await filled_store(chance, chance.randint(1, 12), 300)
    own = [span for span in spans if chance.random() < 0.7]
    streams = {stream_of(span.conversation_id) for span in own}
    after, upto = sorted((chance.randrange(800), chance.randrange(800)))
    log = await store.read_all(0, limit=10_000)
    expected = [e.position for e in log if e.stream in streams and after < e.position <= upto]
    assert await positions_of(store, own, after, upto) == expected


async def test_w1_what_is_not_wanted_is_hardly_read() -> None:
    store, spans = await filled_store(random.Random(1), 40, 4000)
    head = await store.head()
    newest = await positions_of(store, spans, head - 10, head)
    assert newest == list(range(head - 9, head + 1))
    assert store.events_read < 40 * PAGE_EVENTS / 2
