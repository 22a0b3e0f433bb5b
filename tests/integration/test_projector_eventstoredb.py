"""Projecting from EventStoreDB, where positions are bytes and other people's streams lie between ours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from domain.event_store import NewEvent
from infra.eventstoredb import EventStoreDBEventStore
from projections.conversations import CONVERSATIONS
from projections.display_messages import DISPLAY_MESSAGES
from projections.retrying import Retried, retry
from tests.support.eventstoredb.fixtures import double
from tests.support.given import LATER
from tests.support.poison import Poisoned, conversation, goes_on
from tests.support.projecting import fold_whole
from tests.support.read_side import ReadSide, open_read_side

if TYPE_CHECKING:
    from tests.support.eventstoredb.process import DoubleProcess

__all__ = ["double"]

FOREIGN = 200


async def foreign(read_side: ReadSide, events: int = FOREIGN) -> None:
    """Append what is not ours, in streams of several names."""
    for part in range(0, events, 50):
        new = [NewEvent(uuid4(), "theirs", "{}", json.dumps({"n": n})) for n in range(50)]
        await read_side.store.append(f"theirs-{part}-{uuid4()}", new, 0)


async def lag(read_side: ReadSide, name: str) -> tuple[Any, ...]:
    one = (await read_side.statuses(now=LATER))[name]
    return one["lag_events"], one["lag_seconds"], one["parked"]


async def test_lag_counts_our_events_and_an_idle_projector_has_none(double: DoubleProcess, database_url: str) -> None:
    poisoned = Poisoned(DISPLAY_MESSAGES)
    store = EventStoreDBEventStore(double.uri, f"lag-{uuid4().hex}-")
    async with open_read_side(database_url, [CONVERSATIONS, poisoned.projection], store) as read_side:
        await foreign(read_side)
        assert await lag(read_side, "conversations") == (None, None, 0)
        async with read_side.projecting():
            await read_side.append(conversation(1))
            await foreign(read_side)
            position = await read_side.append(conversation(2, "poison"))
            await read_side.reached(position)
            await foreign(read_side)
            assert await lag(read_side, "conversations") == (0, 0.0, 0)
            assert await lag(read_side, "display_messages") == (0, 0.0, 1)
            # the checkpoint moves over what is not ours
            await read_side.until("select 1 from projections having min(position) > %s", position)
            assert await lag(read_side, "conversations") == (0, 0.0, 0)
        await read_side.append(goes_on(1, 3))
        await foreign(read_side)
        position = await read_side.append(goes_on(2, 2))
        assert await lag(read_side, "conversations") == (5, 3600.0, 0)

        async with read_side.projecting():
            await read_side.reached(position)
            assert await lag(read_side, "display_messages") == (0, 0.0, 1)
            poisoned.broken = False
            assert await retry(read_side.database, read_side.store, poisoned.projection) == Retried(1, 0)
        log = await read_side.store.read_all(0, limit=1_000, prefixes=["conversation-"])
        assert {event.stream for event in log} == {f"conversation-{UUID(int=n)}" for n in (1, 2)}
        for projection in (CONVERSATIONS, DISPLAY_MESSAGES):
            assert await read_side.rows(projection) == fold_whole(projection, log)
