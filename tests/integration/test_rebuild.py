"""Rebuilds on a real database: what they make, what they leave alone, and what they leave behind."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from api.rebuilding import make_workshop
from domain.wire import conversation_of
from infra.database import Database
from infra.leases import Leases
from projections.agenda import AGENDA
from projections.catalog import PROJECTIONS
from projections.conversations import CONVERSATIONS
from projections.projection import Projection
from projections.rebuild import run, slices
from projections.rebuild.jobs import RebuildLost, RebuildRunning, cancel, want
from projections.rebuild.run import rebuild
from projections.schema import ensure_schema
from tests.support.given import asked, claimed, closed, history, said, started, stored
from tests.support.long_form import LONG
from tests.support.projecting import interleaved
from tests.support.random_log import random_log, with_summaries
from tests.support.read_side import LOOK_EVERY_S, ReadSide, open_read_side
from tests.support.rebuilding import (
    assert_as_folded,
    assert_no_trace,
    delete_both,
    differences,
    verdicts,
    workshop,
)
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from psycopg import AsyncConnection

    from domain.event_store import StoredEvent
    from projections.event import Event
    from projections.projection import Rows

GENERATIONS = "select distinct generation from projections"
BLOCKED = "select 1 from pg_locks where relation = %s::regclass and not granted"


@pytest.fixture
async def read_side(database_url: str) -> AsyncIterator[ReadSide]:
    async with open_read_side(database_url) as read_side:
        yield read_side


def some_log(seed: int, conversations: int = 12) -> list[StoredEvent]:
    chance = random.Random(seed)
    return interleaved([with_summaries(random_log(chance), chance) for _ in range(conversations)], chance)


class Impatient(Database):
    """Lends for half a second, where nobody asks for longer."""

    @asynccontextmanager
    async def connection(self, longest_s: float = 0.5) -> AsyncIterator[AsyncConnection]:
        async with super().connection(longest_s) as connection:
            yield connection


async def test_r4_a_rebuild_may_take_longer_than_any_other_work_with_the_database(
    read_side: ReadSide, database_url: str
) -> None:
    await read_side.append(some_log(3, 2))
    async with read_side.projecting():
        await read_side.reached(await read_side.store.head())
    async with Impatient(database_url) as impatient:
        work = replace(make_workshop(impatient, read_side.store), leases=Leases(read_side.database))
        async with read_side.holding("lock table rebuilds in access exclusive mode"):
            rebuilding = asyncio.create_task(rebuild(work, PROJECTIONS))
            await read_side.until(BLOCKED, "rebuilds")
            await asyncio.sleep(2)
        await rebuilding
    await assert_as_folded(read_side)


async def test_r4_a_rebuild_while_events_come_in_makes_what_live_projection_makes(
    read_side: ReadSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SLICE_EVENTS", 2_000 if LONG else 50)
    monkeypatch.setattr(slices, "COPY_ROWS", 500 if LONG else 40)
    log = some_log(1, 3_000 if LONG else 12)
    half = len(log) // 2
    async with read_side.projecting():
        await read_side.reached(await read_side.append(log[:half]), timeout_s=PATIENCE_S * (5 if LONG else 1))
        appending = asyncio.create_task(read_side.append(log[half:]))
        await rebuild(workshop(read_side), PROJECTIONS)
        await read_side.reached(await appending, timeout_s=PATIENCE_S * (5 if LONG else 1))
        assert await read_side.execute(GENERATIONS) == [(2,)]
        assert await differences(read_side) == []
        await assert_as_folded(read_side)
        await assert_no_trace(read_side)


async def test_r4_a_planted_row_is_found_by_verify_and_gone_after_a_rebuild(read_side: ReadSide) -> None:
    async with read_side.projecting():
        await read_side.reached(await read_side.append(some_log(2)))
        await read_side.execute(
            "insert into usage (conversation_id, seq, n, purpose, calls, input_tokens, output_tokens, cached_tokens)"
            " values (gen_random_uuid(), 1, 0, 'turn', 1, 1, 1, 1)"
        )
        [found] = await differences(read_side)
        assert found.startswith("usage[conversation_id=")
        assert found.endswith("seq=1, n=0, purpose=turn]: the log says no such row, the table has one")
        await rebuild(workshop(read_side), PROJECTIONS)
        assert await differences(read_side) == []


async def test_r2_a_falsified_state_is_found_by_verify_with_both_values(read_side: ReadSide) -> None:
    async with read_side.projecting():
        log = [stored(event) for event in history(started(), asked(), claimed(), said(), closed())]
        await read_side.reached(await read_side.append(log))
    await read_side.execute(
        """update conversations set fsm_state = '{"state": "awaiting_input", "pending": {}, "last_seq": 5}'"""
    )
    assert await differences(read_side) == [
        f"conversations[conversation_id={log[0].stream.removeprefix('conversation-')}].fsm_state: "
        'the log says {"state": "idle", "pending": {}, "last_seq": 5}, '
        'the table {"state": "awaiting_input", "pending": {}, "last_seq": 5}'
    ]


async def test_r5_the_agenda_is_rebuilt_under_its_workers_who_notice_nothing(read_side: ReadSide) -> None:
    log = [stored(event) for event in history(started(), asked())]
    held = "select seen_seq, seen_due, claimed_by, hold_until, strikes, wake_at from agenda"
    async with read_side.projecting():
        await read_side.reached(await read_side.append(log))
        await read_side.execute(
            "update agenda set seen_seq = 1, strikes = 2, claimed_by = gen_random_uuid(), hold_until = now()"
        )
        await read_side.execute(
            "insert into agenda (conversation_id, kind, claimed_by, hold_until)"
            " values (gen_random_uuid(), 'turn', gen_random_uuid(), now())"
        )
        before = await read_side.execute(f"{held} order by seen_seq")
        await rebuild(workshop(read_side), [AGENDA])
        assert await read_side.execute(f"{held} order by seen_seq") == before
        assert await differences(read_side, AGENDA) == []


async def test_r5_of_two_rebuilds_the_second_is_refused(read_side: ReadSide) -> None:
    async with read_side.database.connection() as connection:
        await want(connection, [CONVERSATIONS])
        with pytest.raises(RebuildRunning):
            await want(connection, [CONVERSATIONS, AGENDA])
    await workshop(read_side).leases.acquire("rebuild:agenda", "another", 60)
    with pytest.raises(RebuildRunning, match="agenda is being rebuilt already"):
        await rebuild(workshop(read_side), PROJECTIONS)


async def test_r5_what_waits_for_a_reader_of_a_table_gives_way_to_others_and_goes_on(
    read_side: ReadSide, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "projections.rebuild.run")
    async with read_side.projecting():
        await read_side.reached(await read_side.append(some_log(3, 3)))
        async with read_side.holding("select conversation_id from conversations"):
            rebuilding = asyncio.create_task(rebuild(workshop(read_side), [CONVERSATIONS]))
            async with asyncio.timeout(PATIENCE_S):
                while "somebody reads a table for long" not in caplog.text:  # noqa: ASYNC110 - a log cannot be waited for
                    await asyncio.sleep(LOOK_EVERY_S)
                await read_side.rows(CONVERSATIONS)
            assert not rebuilding.done()
        await rebuilding
        await assert_as_folded(read_side)


async def test_r5_a_rebuild_that_is_cancelled_leaves_no_trace(
    read_side: ReadSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded, goes_on = asyncio.Event(), asyncio.Event()

    async def fold_slice(*given: Any) -> None:
        await slices.fold_slice(*given)
        folded.set()
        await goes_on.wait()

    monkeypatch.setattr(run, "SLICE_EVENTS", 20)
    monkeypatch.setattr(run, "fold_slice", fold_slice)
    await read_side.append(some_log(4))
    rebuilding = asyncio.create_task(rebuild(workshop(read_side), PROJECTIONS))
    await folded.wait()
    async with read_side.database.connection() as connection:
        assert await cancel(connection, "usage")
    goes_on.set()
    with pytest.raises(RebuildLost):
        await rebuilding
    await assert_no_trace(read_side)
    assert await read_side.execute(GENERATIONS) == [(1,)]


async def test_p3_a_conversation_that_was_deleted_stays_away(read_side: ReadSide) -> None:
    log = some_log(5, 3)
    async with read_side.projecting():
        await read_side.append(log)
        for event in (log[0], log[-1]):
            await delete_both(read_side.store, event.stream)
        await read_side.reached(await read_side.store.head())
        await rebuild(workshop(read_side), PROJECTIONS)
        assert await differences(read_side) == []
        await assert_as_folded(read_side)


async def test_r6_a_poison_event_is_parked_by_a_rebuild_as_by_live_projection(read_side: ReadSide) -> None:
    log = [stored(event) for event in history(started(), asked("m1"), claimed(), said("poison"), closed())]
    await read_side.append([*some_log(6, 3), *log])

    def fold(rows: Rows, events: Sequence[Event]) -> None:
        if any("poison" in str(event.data) for event in events):
            raise ValueError("poison")
        CONVERSATIONS.fold(rows, events)

    poisoned = replace(CONVERSATIONS, fold=fold)
    await rebuild(workshop(read_side), [poisoned])
    parked = "select projection, seq, last_seq, type from parked"
    assert await read_side.execute(parked) == [("conversations", 4, 5, "assistant_msg")]
    assert await read_side.execute("select count(*), max(last_seq) from conversations where last_seq = 3") == [(1, 3)]
    (verdict,) = await verdicts(read_side, CONVERSATIONS)
    assert (verdict.differences, verdict.parked) == (0, {conversation_of(log[0].stream)})
    await rebuild(workshop(read_side), [CONVERSATIONS])
    assert await read_side.execute(parked) == []
    await assert_no_trace(read_side)


async def test_a_long_conversation_is_not_held_in_memory_whole(
    read_side: ReadSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projections.rebuild.folding.PIECE_EVENTS", 7)
    monkeypatch.setattr("projections.rebuild.folding.MOST_HELD", 5)
    monkeypatch.setattr("projections.rebuild.slices.COPY_ROWS", 3)

    def newest(rows: Rows, events: Sequence[Event]) -> None:
        for event in events:
            rows.put({"type": event.type, "seq": event.seq, "done": "yes"})

    projection = Projection(
        name="newest_of_type",
        version=1,
        columns={"type": "text not null", "seq": "int not null", "done": "text not null"},
        key=("type",),
        open_while=("done", frozenset({"no"})),
        fold=newest,
    )
    read_side.projections = [*PROJECTIONS, projection]
    async with read_side.database.connection() as connection:
        await ensure_schema(connection, [projection])
    chance = random.Random(8)
    await read_side.append(random_log(chance, steps=200))
    await rebuild(workshop(read_side), read_side.projections)
    await assert_as_folded(read_side)
    assert await differences(read_side) == []
