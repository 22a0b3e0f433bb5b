"""Poison events on a real database: retried, parked in order while others flow, and folded when it can be done."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING
from uuid import UUID

from domain.events import EVENT_TYPES
from domain.wire import ALL_TYPES
from projections.agenda import AGENDA
from projections.catalog import PROJECTIONS
from projections.conversations import CONVERSATIONS
from projections.display_messages import DISPLAY_MESSAGES
from projections.retrying import Retried, retry
from tests.support.poison import NOTES, REFUSED, Poisoned, conversation, goes_on
from tests.support.projecting import fold_whole, interleaved
from tests.support.read_side import ReadSide, open_read_side

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractAsyncContextManager

    import pytest
    from psycopg import AsyncConnection

    from infra.database import Database
    from projections.projection import Projection

HELD = "select projection, conversation_id, seq, last_seq, attempts from parked order by projection, conversation_id"


async def check_rows(read_side: ReadSide, projections: Iterable[Projection], *, but: Iterable[int] = ()) -> None:
    """The rows of all conversations but some are those of a fold from scratch."""
    log = await read_side.store.read_all(0, limit=100_000, prefixes=["conversation-"])
    out = {UUID(int=number) for number in but}
    for projection in projections:
        rows, whole = await read_side.rows(projection), fold_whole(projection, log)
        assert {key: row for key, row in rows.items() if key[0] not in out} == {
            key: row for key, row in whole.items() if key[0] not in out
        }, projection.name


async def test_r6_a_poison_event_parks_its_conversation_in_order_while_others_flow(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    poisoned = Poisoned(AGENDA)
    bad, good = (1, 40), range(2, 40)
    log = interleaved(
        [conversation(n, "poison secret" if n in bad else "Hello") for n in (*bad, *good)], random.Random(1)
    )
    projections = [poisoned.projection, CONVERSATIONS, DISPLAY_MESSAGES]
    async with open_read_side(database_url, projections) as read_side:
        await read_side.append(log)
        async with read_side.projecting():
            await read_side.reached(await read_side.store.head())
            assert await read_side.execute(HELD) == [("agenda", UUID(int=n), 3, 6, 4) for n in bad]
            await check_rows(read_side, projections[1:])
            await check_rows(read_side, [AGENDA], but=bad)
            rows = await read_side.rows(AGENDA)
            assert [rows[UUID(int=n), "turn"]["seq"] for n in bad] == [2, 2]

            await read_side.reached(await read_side.append([*goes_on(1, 2), *goes_on(2)]))
            assert [last_seq for _, _, _, last_seq, _ in await read_side.execute(HELD)] == [8, 6]
            await check_rows(read_side, [AGENDA], but=bad)
            found = (await read_side.statuses())["agenda"]
            assert (found["status"], found["parked"], found["lag_events"]) == ("running", 2, 0)
            assert found["error"].startswith("parked at a user_msg: ValueError: cannot take … … (poison.py:")

            assert await retry(read_side.database, read_side.store, poisoned.projection) == Retried(0, 2)
            assert [attempts for *_, attempts in await read_side.execute(HELD)] == [5, 5]
            poisoned.broken = False
            assert await retry(read_side.database, read_side.store, poisoned.projection) == Retried(2, 0)
            await check_rows(read_side, projections)
            await read_side.reached(await read_side.append(goes_on(40)))
            await check_rows(read_side, projections)
        assert (await read_side.statuses())["agenda"]["error"] is None
    assert "secret" not in caplog.text


async def test_r6_rows_that_the_database_refuses_park_their_conversations(database_url: str) -> None:
    bad = dict(zip((7, 77, 177), REFUSED.items(), strict=True))
    log = interleaved([conversation(n, bad[n][0] if n in bad else "Hello") for n in range(1, 200)], random.Random(2))
    async with open_read_side(database_url, [CONVERSATIONS, NOTES]) as read_side:
        await read_side.append(log)
        async with read_side.projecting():
            await read_side.reached(await read_side.store.head())
            await check_rows(read_side, [CONVERSATIONS])
            await check_rows(read_side, [NOTES], but=bad)
            assert await read_side.execute(HELD) == [("notes", UUID(int=n), 3, 6, 4) for n in bad]
            errors = [
                error for (error,) in await read_side.execute("select error from parked order by conversation_id")
            ]
            assert all(f"({state}" in error for error, (_, state) in zip(errors, bad.values(), strict=True)), errors
            await read_side.execute("alter table notes drop constraint notes_size_check, alter size drop not null")
            assert await retry(read_side.database, read_side.store, NOTES) == Retried(2, 1)
            await check_rows(read_side, [NOTES], but=[177])


async def test_r6_a_database_that_refuses_to_work_parks_nothing(database_url: str) -> None:
    async with open_read_side(database_url, [CONVERSATIONS, NOTES]) as read_side:
        await read_side.execute("alter table notes rename to away")
        async with read_side.projecting():
            position = await read_side.append(conversation(1))
            await read_side.reached(position, "conversations")
            await read_side.until("select 1 from projections where name = 'notes' and status = 'failing'")
            found = (await read_side.statuses())["notes"]
            assert found["error"].startswith("UndefinedTable (42P01)")
            assert (found["position"], found["lag_events"], found["parked"]) == (0, 6, 0)
            await read_side.execute("alter table away rename to notes")
            await read_side.reached(position)
        await check_rows(read_side, [CONVERSATIONS, NOTES])
        assert await read_side.execute(HELD) == []


async def test_r6_poison_that_goes_on_for_ever_holds_nobody_else_up(database_url: str) -> None:
    poisoned = Poisoned(DISPLAY_MESSAGES)
    projections = [poisoned.projection, CONVERSATIONS]
    async with open_read_side(database_url, projections) as read_side, read_side.projecting():
        for number in range(1, 25):
            await read_side.append(conversation(number, "poison" if number % 4 == 0 else "Hello"))
            await read_side.append(goes_on(number))
        await read_side.reached(await read_side.store.head())
        bad = range(4, 25, 4)
        assert [(one, seq, last) for _, one, seq, last, _ in await read_side.execute(HELD)] == [
            (UUID(int=n), 3, 7) for n in bad
        ]
        await check_rows(read_side, projections[1:])
        await check_rows(read_side, [DISPLAY_MESSAGES], but=bad)


async def test_r6_a_deleted_conversation_is_not_parked_any_more(database_url: str) -> None:
    poisoned = Poisoned(CONVERSATIONS)
    async with open_read_side(database_url, [poisoned.projection]) as read_side, read_side.projecting():
        log = conversation(1, "poison")
        await read_side.reached(await read_side.append(log))
        assert len(await read_side.execute(HELD)) == 1
        await read_side.store.delete(log[0].stream)
        await read_side.reached(await read_side.store.head())
        assert await read_side.execute(HELD) == []
        assert await read_side.rows(CONVERSATIONS) == {}


async def test_r6_a_retry_meets_a_projector_at_work_and_no_event_is_lost_or_doubled(database_url: str) -> None:
    poisoned = Poisoned(CONVERSATIONS)
    async with open_read_side(database_url, [poisoned.projection]) as read_side, read_side.projecting():
        await read_side.reached(await read_side.append([e for n in range(1, 9) for e in conversation(n, "poison")]))
        assert len(await read_side.execute(HELD)) == 8
        poisoned.broken = False

        async def go_on() -> None:
            for number in range(1, 9):
                await read_side.append(goes_on(number, 5))

        async with asyncio.TaskGroup() as together:
            together.create_task(go_on())
            for _ in range(3):
                together.create_task(retry(read_side.database, read_side.store, poisoned.projection))
        await read_side.reached(await read_side.store.head())
        assert await read_side.execute(HELD) == []
        await check_rows(read_side, [CONVERSATIONS])


class Lending:
    """A database that counts how often it lends a connection."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.loans = 0

    def connection(self) -> AbstractAsyncContextManager[AsyncConnection]:
        self.loans += 1
        return self._database.connection()


async def test_r6_a_retry_of_many_conversations_borrows_a_connection_for_each(database_url: str) -> None:
    poisoned = Poisoned(CONVERSATIONS)
    async with open_read_side(database_url, [poisoned.projection]) as read_side:
        async with read_side.projecting():
            await read_side.reached(await read_side.append([e for n in range(1, 9) for e in conversation(n, "poison")]))
        lending = Lending(read_side.database)
        assert await retry(lending, read_side.store, poisoned.projection) == Retried(0, 8)
        assert lending.loans > 8, "a connection may be lent for some seconds only"


async def test_r6_a_retry_keeps_what_workers_know_of_the_agenda_and_removes_what_the_log_does_not_explain(
    database_url: str,
) -> None:
    poisoned = Poisoned(AGENDA)
    async with open_read_side(database_url, [poisoned.projection, DISPLAY_MESSAGES]) as read_side:
        async with read_side.projecting():
            await read_side.reached(await read_side.append(conversation(1, "poison")))
        await read_side.execute("update agenda set seen_seq = 2, strikes = 4")
        await read_side.execute(
            "insert into agenda (conversation_id, kind) select conversation_id, 'ghost' from agenda"
        )
        poisoned.broken = False
        assert await retry(read_side.database, read_side.store, poisoned.projection) == Retried(1, 0)
        assert await read_side.execute("select kind, seq, seen_seq, strikes from agenda") == [("turn", 6, 2, 4)]


async def test_l9_code_that_knows_a_type_folds_again_what_was_folded_without_it(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = [conversation(n) for n in range(1, 5)]
    async with open_read_side(database_url, PROJECTIONS) as read_side:
        with monkeypatch.context() as older:
            older.delitem(EVENT_TYPES, "user_msg")
            older.delitem(ALL_TYPES, "user_msg")
            async with read_side.projecting():
                await read_side.append(event for one in log[:3] for event in one)
                await read_side.reached(await read_side.append(log[3][:1]))
                found = await read_side.statuses()
                assert {one["skipped_position"] for one in found.values()} == {2}
                assert {one["parked"] for one in found.values()} == {0}
        async with read_side.projecting():
            await read_side.reached(await read_side.append(log[3][1:]))
            await read_side.until("select 1 where not exists (table parked) and not exists (table skipped)")
            await check_rows(read_side, PROJECTIONS)
