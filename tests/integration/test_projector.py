"""The projector on a real database: what it folds, and that rows and checkpoints move together."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest

from projections.advance import Led, NotLeading, Unfoldable, advance
from projections.agenda import AGENDA
from projections.catalog import PROJECTIONS
from projections.conversations import CONVERSATIONS
from projections.display_messages import DISPLAY_MESSAGES
from projections.leading import take_over
from projections.pausing import pause, resume
from projections.span import Span
from tests.support.given import asked, claimed, closed, history, said, started, stored
from tests.support.projecting import fold_whole, interleaved
from tests.support.random_log import random_log
from tests.support.read_side import ReadSide, open_read_side
from tests.support.slack import PATIENCE_S, SLACK_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from projections.event import Event
    from projections.projection import Rows

TURN = [stored(event) for event in history(started(), asked(), claimed(), said(), closed())]
TERMINATE_OTHERS = """
    select pg_terminate_backend(pid, 60000) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()
"""


@pytest.fixture
async def read_side(database_url: str) -> AsyncIterator[ReadSide]:
    async with open_read_side(database_url) as read_side:
        yield read_side


async def assert_rebuilt_is_live(read_side: ReadSide) -> None:
    log = await read_side.store.read_all(0, limit=100_000, prefixes=["conversation-"])
    for projection in read_side.projections:
        assert await read_side.rows(projection) == fold_whole(projection, log), projection.name


async def test_r4_live_rows_are_those_of_a_fold_from_scratch_for_any_log(read_side: ReadSide) -> None:
    chance = random.Random(7)
    log = interleaved([random_log(chance) for _ in range(30)], chance)
    async with read_side.projecting():
        await read_side.reached(await read_side.append(log))
        await assert_rebuilt_is_live(read_side)
        assert await read_side.execute("select distinct status, error from projections") == [("running", None)]


async def test_l11_the_longest_text_of_distinct_words_and_any_character_is_shown(read_side: ReadSide) -> None:
    words = " ".join(f"wört{n:x}" for n in range(50_000)) + "".join(map(chr, range(1, 0xD7FF, 7)))
    async with read_side.projecting():
        await read_side.reached(await read_side.append([stored(e) for e in history(started(), asked(text=words))]))
        [row] = (await read_side.rows(DISPLAY_MESSAGES)).values()
    assert row["content"] == {"type": "text", "text": words}


async def test_l9_an_unknown_type_is_skipped_and_its_first_position_remembered(read_side: ReadSide) -> None:
    log = [*TURN[:2], replace(TURN[2], type="from_the_future", event_id=uuid4()), *TURN[3:]]
    async with read_side.projecting():
        await read_side.append(log[:2])
        first = await read_side.append(log[2:3])
        await read_side.reached(await read_side.append(log[3:]))
        again = replace(TURN[0], type="from_the_future", seq=6, event_id=uuid4())
        await read_side.reached(await read_side.append([again]))
    assert {one["skipped_position"] for one in (await read_side.statuses()).values()} == {first}
    [row] = (await read_side.rows(CONVERSATIONS)).values()
    assert row["last_seq"] == 5


async def test_checkpoints_move_over_ignored_events_too(read_side: ReadSide) -> None:
    async with read_side.projecting():
        other = replace(TURN[0], stream="summary-x", event_id=uuid4())
        await read_side.reached(await read_side.append([other]))


async def test_p3_a_deleted_conversation_leaves_every_table(read_side: ReadSide) -> None:
    async with read_side.projecting():
        await read_side.append(TURN)
        await read_side.store.delete(TURN[0].stream)
        await read_side.reached(await read_side.store.head())
        for projection in PROJECTIONS:
            assert await read_side.rows(projection) == {}


async def test_r1_a_batch_that_is_delivered_again_or_by_a_former_leader_is_refused(read_side: ReadSide) -> None:
    span = Span(0, 5, TURN)
    former, leader = Led(CONVERSATIONS, 1), Led(CONVERSATIONS, 2)
    async with read_side.database.connection() as connection:
        assert await take_over(connection, former) == (0, False)
        assert await take_over(connection, leader) == (0, False)
        with pytest.raises(NotLeading):
            await take_over(connection, former)
        with pytest.raises(NotLeading):
            await advance(connection, [former], span)
        assert await read_side.rows(CONVERSATIONS) == {}
        await advance(connection, [leader], span)
        with pytest.raises(NotLeading):
            await advance(connection, [leader], span)
        assert await take_over(connection, leader) == (5, False)
    assert await read_side.rows(CONVERSATIONS) == fold_whole(CONVERSATIONS, TURN)


async def lead_and_fall_asleep(read_side: ReadSide) -> None:
    """Send half a transaction and wait for whoever goes on without it."""
    async with await read_side.database.connect() as asleep, asleep.pipeline():
        await asleep.execute("begin")
        moved = await asleep.execute("update projections set position = 5 where name = 'usage' returning position")
        assert await moved.fetchone() == (5,)
        async with read_side.projecting():
            await read_side.reached(await read_side.append(TURN))


async def test_r7_a_former_leader_that_sleeps_while_it_sends_its_transaction_is_cut_off(read_side: ReadSide) -> None:
    with pytest.raises(psycopg.OperationalError, match="terminat"):
        await lead_and_fall_asleep(read_side)
    await assert_rebuilt_is_live(read_side)


async def test_r7_a_lost_notification_delays_nothing_by_more_than_5_s(read_side: ReadSide) -> None:
    async with read_side.projecting():
        await read_side.reached(await read_side.append(TURN[:3]))
        one = TURN[3]
        row = (4, one.event_id, one.stream, one.seq, one.type, one.data, one.metadata)
        await read_side.execute("insert into log.events values (%s, %s, %s, %s, %s, %s, %s)", *row)
        await read_side.reached(4, timeout_s=5 + SLACK_S)
    await assert_rebuilt_is_live(read_side)


async def test_a_pause_outlives_the_process_that_projects(read_side: ReadSide) -> None:
    usage = "select position, status from projections where name = 'usage'"
    others = [projection.name for projection in PROJECTIONS if projection.name != "usage"]
    async with read_side.database.connection() as connection:
        assert await pause(connection, "usage")
    for part in (TURN[:2], TURN[2:4]):
        async with read_side.projecting():
            await read_side.reached(await read_side.append(part), *others)
        assert await read_side.execute(usage) == [(0, "paused")]
    async with read_side.projecting():
        await read_side.reached(await read_side.append(TURN[4:]), *others)
        async with read_side.database.connection() as connection:
            assert await resume(connection, "usage")
        await read_side.reached(5)
    assert await read_side.execute(usage) == [(5, "running")]
    await assert_rebuilt_is_live(read_side)


async def test_r1_a_fold_that_fails_leaves_neither_rows_nor_a_checkpoint(read_side: ReadSide) -> None:
    def fold(rows: Rows, events: Sequence[Event]) -> None:
        raise ValueError("poison")

    leds = [Led(CONVERSATIONS, 1), Led(replace(AGENDA, fold=fold), 1)]
    async with read_side.database.connection() as connection:
        for led in leds:
            await take_over(connection, led)
        with pytest.raises(Unfoldable, match="poison"):
            await advance(connection, leds, Span(0, 5, TURN))
    assert await read_side.rows(CONVERSATIONS) == {}
    assert await read_side.execute("select distinct position from projections") == [(0,)]


async def test_r2_a_falsified_row_is_repaired_by_the_next_clean_point(read_side: ReadSide) -> None:
    async with read_side.projecting():
        await read_side.reached(await read_side.append(TURN[:1]))
        await read_side.execute("""
            update conversations set status = 'suspended', last_seq = 99,
                fsm_state = '{"state": "awaiting_input", "pending": {"ghost": {}}, "last_seq": 99}'
        """)
        await read_side.reached(await read_side.append(TURN[1:]))
        await assert_rebuilt_is_live(read_side)


async def test_a_database_that_drops_all_connections_loses_nothing(read_side: ReadSide) -> None:
    chance = random.Random(3)
    log = interleaved([random_log(chance) for _ in range(10)], chance)
    async with read_side.projecting():
        for at in range(0, len(log), 100):
            await read_side.append(log[at : at + 100])
            await read_side.execute(TERMINATE_OTHERS)
        await read_side.reached(await read_side.store.head())
    await assert_rebuilt_is_live(read_side)


async def test_projections_at_different_positions_meet(read_side: ReadSide) -> None:
    async with read_side.projecting():
        await read_side.reached(await read_side.append(TURN[:3]))
    await read_side.execute("delete from conversations")
    await read_side.execute("update projections set position = 0 where name = 'conversations'")
    async with read_side.projecting():
        await read_side.reached(await read_side.append(TURN[3:]))
    await assert_rebuilt_is_live(read_side)


async def test_the_agenda_says_when_to_wake(read_side: ReadSide) -> None:
    async with read_side.projecting(), aclosing(read_side.database.listen(["agenda turn"])) as notifications:
        assert await anext(notifications) is None
        await read_side.append(TURN[:2])
        async with asyncio.timeout(PATIENCE_S):
            notification = await anext(notifications)
    assert notification is not None
    assert float(notification.payload) == 0
