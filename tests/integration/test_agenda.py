"""Claims on a real database: who holds what, what a finish may hand back, and when somebody looks next."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest

from commands.agent.agenda import AgendaUnavailable, Claim
from infra.agenda import _CLAIM, PostgresAgenda, PostgresWaker
from infra.database import Database
from projections.agenda import AGENDA
from projections.schema import ensure_schema
from projections.tables import Table
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LEASE_S = 3_600.0
"""Longer than any test: what is claimed stays claimed."""
ABOUT_S = 60.0
"""A machine may stand still between a statement and the look at what it did."""
ENDED = -1.0
"""The length of a lease that is over when it begins, as if its holder had died long ago."""

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


class Rows:
    """The table, with the projector's part and a look into the workers'."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._table = Table(AGENDA)

    def agenda(self, *, lease_s: float = LEASE_S) -> PostgresAgenda:
        """One worker's way to the table."""
        return PostgresAgenda(self.database, lease_s=lease_s)

    async def fold(
        self,
        *conversations: UUID,
        seq: int,
        at_once: bool = True,
        due_at: datetime | None = None,
        announce: bool = False,
    ) -> None:
        """Write what the projector knows."""
        rows = [
            {
                "conversation_id": one,
                "kind": "turn",
                "seq": seq,
                "due_at": due_at or (NOW if at_once else None),
                "at_once": at_once,
                "state": None,
            }
            for one in sorted(conversations)
        ]
        async with self.database.connection() as connection, connection.transaction():
            await self._table.upsert(connection, rows)
            if announce and AGENDA.announce:
                await connection.execute(AGENDA.announce, {"conversations": list(conversations)})

    async def one(self, conversation_id: UUID) -> dict[str, Any]:
        """Return the workers' columns of a row, and how many seconds from now it wants to be looked at."""
        names = ("seen_seq", "seen_due", "claimed_by", "strikes", "wake_in")
        async with self.database.connection() as connection:
            cursor = await connection.execute(
                "select seen_seq, seen_due, claimed_by, strikes,"
                " extract(epoch from wake_at - clock_timestamp())::float8 from agenda where conversation_id = %s",
                [conversation_id],
            )
            row = await cursor.fetchone()
        assert row is not None
        return dict(zip(names, row, strict=True))


@pytest.fixture
async def rows(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rows]:
    monkeypatch.setattr("infra.agenda.ANSWER_S", PATIENCE_S)
    async with Database(database_url, wait_s=PATIENCE_S) as database:
        async with database.connection() as connection:
            await ensure_schema(connection, [AGENDA])
        yield Rows(database)


def in_seconds(seconds: float) -> datetime:
    """A time from now, by this machine's clock, which is the database's."""
    return datetime.now(UTC) + timedelta(seconds=seconds)


async def claimed(agenda: PostgresAgenda, limit: int = 10) -> set[UUID]:
    return {claim.conversation_id for claim in await agenda.claim(limit)}


async def held(agenda: PostgresAgenda) -> Claim:
    """Claim the only row that is due."""
    (claim,) = await agenda.claim(10)
    return claim


async def test_what_is_due_is_claimed_once_the_oldest_first_and_never_more_than_asked_for(rows: Rows) -> None:
    conversations = [uuid4() for _ in range(5)]
    for age, one in enumerate(conversations):
        await rows.fold(one, seq=2, due_at=NOW - timedelta(seconds=age))
    await rows.fold(*(uuid4() for _ in range(3)), seq=2, at_once=False)
    agenda = rows.agenda()
    assert [len(await claimed(agenda, 2)) for _ in range(3)] == [2, 2, 1]
    assert await claimed(agenda) == set()


async def test_the_oldest_are_claimed_first(rows: Rows) -> None:
    young, old = uuid4(), uuid4()
    await rows.fold(young, seq=2, at_once=False, due_at=in_seconds(-1))
    await rows.fold(old, seq=2, at_once=False, due_at=in_seconds(-60))
    assert await claimed(rows.agenda(), 1) == {old}


async def test_h9_a_deadline_is_due_when_it_has_come(rows: Rows) -> None:
    later, now = uuid4(), uuid4()
    await rows.fold(later, seq=6, at_once=False, due_at=in_seconds(2 * LEASE_S))
    await rows.fold(now, seq=6, at_once=False, due_at=in_seconds(-0.001))
    agenda = rows.agenda()
    assert await claimed(agenda) == {now}
    assert await agenda.due_in() == pytest.approx(LEASE_S, abs=ABOUT_S), "the lease ends before the other deadline"


async def test_h9_expired_is_what_nothing_but_a_deadline_makes_due(rows: Rows) -> None:
    expired, later, working, seen = (uuid4() for _ in range(4))
    agenda = rows.agenda()
    await rows.fold(seen, seq=6)
    assert await agenda.finish(await held(agenda), 7, in_seconds(-1)), "who has read more of the log knows a deadline"
    await rows.fold(expired, seq=6, at_once=False, due_at=in_seconds(-0.001))
    await rows.fold(later, seq=6, at_once=False, due_at=in_seconds(LEASE_S))
    await rows.fold(working, seq=6)
    found = {claim.conversation_id for claim in await agenda.claim_expired(9)}
    assert expired in found
    if seen not in found:  # a finish is never due at once
        await asyncio.sleep((await rows.one(seen))["wake_in"])
        found |= {claim.conversation_id for claim in await agenda.claim_expired(9)}
    assert found == {expired, seen}
    assert await claimed(agenda) == {working}


async def test_t7_two_workers_never_hold_the_same_row_at_once(rows: Rows) -> None:
    conversations = [uuid4() for _ in range(200)]
    await rows.fold(*conversations, seq=2)
    found: list[UUID] = []

    async def work(agenda: PostgresAgenda, hints: bool) -> None:
        for one in conversations:
            if hints:
                claim = await agenda.claim_hinted(one)
                found.extend([claim.conversation_id] if claim else [])
            else:
                found.extend(await claimed(agenda, 3))

    await asyncio.gather(*(work(rows.agenda(), hints) for hints in (True, False, True, False)))
    assert sorted(found) == sorted(conversations)


async def test_a_hint_claims_what_the_projector_has_not_seen_and_not_what_another_holds(rows: Rows) -> None:
    one, agenda = uuid4(), rows.agenda()
    claim = await agenda.claim_hinted(one)
    assert claim == Claim(one, claim.token if claim else uuid4(), takeover=False)
    assert await rows.agenda().claim_hinted(one) is None
    await rows.fold(one, seq=2)
    assert await claimed(rows.agenda()) == set()
    assert await agenda.extend([claim] if claim else []) == {one}


async def test_t7_a_claim_after_one_that_was_not_handed_back_is_a_take_over_also_by_hint(rows: Rows) -> None:
    dead = rows.agenda(lease_s=ENDED)
    one = uuid4()
    await rows.fold(one, seq=2)
    assert (await held(dead)).takeover is False
    for strikes in (1, 2):
        hinted = await dead.claim_hinted(one)
        assert hinted is not None
        assert (hinted.takeover, (await rows.one(one))["strikes"]) == (True, 2 * strikes - 1)
        assert ((await held(dead)).takeover, (await rows.one(one))["strikes"]) == (True, 2 * strikes)


@pytest.mark.parametrize("orderly", ["finish", "release"])
async def test_t7_a_claim_after_one_that_was_handed_back_is_none(rows: Rows, orderly: str) -> None:
    one, agenda = uuid4(), rows.agenda()
    await rows.fold(one, seq=2)
    await held(rows.agenda(lease_s=ENDED))
    claim = await held(agenda)
    assert claim.takeover is True
    if orderly == "finish":
        assert await agenda.finish(claim, 2, None)
    else:
        await agenda.release(claim, pause_s=0, failed=False)
    again = await agenda.claim_hinted(one)
    assert again is not None
    assert (again.takeover, (await rows.one(one))["strikes"]) == (False, 0)


async def test_what_is_finished_is_not_looked_at_again_until_something_newer_is_folded(rows: Rows) -> None:
    one, agenda = uuid4(), rows.agenda()
    await rows.fold(one, seq=2)
    assert await agenda.finish(await held(agenda), 5, None)
    for seq in (2, 3, 5):  # what the worker has paid already is folded late
        await rows.fold(one, seq=seq)
        assert (await claimed(agenda), await agenda.due_in()) == (set(), None)
    await rows.fold(one, seq=6)
    assert await claimed(agenda) == {one}


async def test_finish_refuses_when_newer_events_were_folded_and_the_claim_goes_on(rows: Rows) -> None:
    one, agenda = uuid4(), rows.agenda()
    await rows.fold(one, seq=2)
    claim = await held(agenda)
    await rows.fold(one, seq=6)
    assert await agenda.finish(claim, 5, None) is False
    assert await agenda.extend([claim]) == {one}
    assert await agenda.finish(claim, 6, None) is True
    assert await claimed(agenda) == set()


async def test_a_finish_and_a_fold_at_the_same_time_never_lose_what_was_folded(rows: Rows) -> None:
    agenda = rows.agenda()
    for _ in range(60):
        one = uuid4()
        await rows.fold(one, seq=2)
        claim = await held(agenda)
        finished, _ = await asyncio.gather(agenda.finish(claim, 5, None), rows.fold(one, seq=6))
        if finished:
            assert await claimed(agenda) == {one}
        else:
            assert await agenda.extend([claim]) == {one}
            assert await agenda.finish(claim, 6, None)


async def test_t7_a_lost_claim_can_be_neither_renewed_nor_handed_back(rows: Rows) -> None:
    one = uuid4()
    await rows.fold(one, seq=2)
    lost, kept = await held(rows.agenda(lease_s=ENDED)), await held(rows.agenda())
    agenda = rows.agenda()
    assert await agenda.extend([lost]) == set()
    assert await agenda.finish(lost, 9, None) is False
    await agenda.release(lost, pause_s=60, failed=False)
    assert await agenda.extend([lost, kept]) == {one}
    assert await agenda.finish(kept, 2, None)
    assert await agenda.finish(kept, 2, None) is False
    assert await agenda.extend([]) == set()


async def test_a_lease_that_ran_out_may_be_renewed_as_long_as_nobody_took_it(rows: Rows) -> None:
    one = uuid4()
    await rows.fold(one, seq=2)
    late, agenda = await held(rows.agenda(lease_s=ENDED)), rows.agenda()
    assert await agenda.extend([late]) == {one}
    assert await claimed(agenda) == set()


async def test_a_pause_keeps_everybody_away_and_hints_too(rows: Rows) -> None:
    one, agenda = uuid4(), rows.agenda()
    await rows.fold(one, seq=2)
    await agenda.release(await held(agenda), pause_s=LEASE_S, failed=False)
    await rows.fold(one, seq=3)
    assert await claimed(agenda) == set()
    assert await agenda.claim_hinted(one) is None
    assert await agenda.due_in() == pytest.approx(LEASE_S, abs=ABOUT_S)


async def test_what_fails_again_and_again_is_tried_less_and_less_often(rows: Rows) -> None:
    one, agenda = uuid4(), rows.agenda()
    await rows.fold(one, seq=2)
    pauses = []
    for _ in range(3):
        claim = await held(agenda)
        await agenda.release(claim, pause_s=1_000, failed=True)
        pauses.append((await rows.one(one))["wake_in"])
        await agenda.release(claim, pause_s=ENDED, failed=True)
    assert pauses == pytest.approx([1_000, 2_000, 3_000], abs=ABOUT_S)
    again = await held(agenda)
    assert again.takeover
    assert await agenda.finish(again, 2, None)
    assert (await rows.one(one))["strikes"] == 0


async def test_h9_a_finish_with_a_deadline_is_looked_at_then(rows: Rows) -> None:
    one, agenda = uuid4(), rows.agenda()
    await rows.fold(one, seq=2)
    assert await agenda.finish(await held(agenda), 8, in_seconds(1_000))
    assert await claimed(agenda) == set()
    assert await agenda.due_in() == pytest.approx(1_000, abs=ABOUT_S)
    await rows.fold(one, seq=8, at_once=False, due_at=in_seconds(2_000))
    assert await agenda.due_in() == pytest.approx(1_000, abs=ABOUT_S), "who has seen as much has said when"


async def test_h9_who_has_a_slow_clock_does_not_claim_in_a_circle(rows: Rows) -> None:
    """For it the deadline is still to come, for the database it has passed: so it is claimed, and handed back."""
    one, agenda = uuid4(), rows.agenda()
    await rows.fold(one, seq=6, at_once=False, due_at=in_seconds(-5))
    claim, began = await held(agenda), time.monotonic()
    assert await agenda.finish(claim, 6, in_seconds(-5))
    wake_in = (await rows.one(one))["wake_in"]
    assert 0.1 - (time.monotonic() - began) <= wake_in <= 0.1, "a tenth of a second after it was handed back"


async def test_the_claims_of_one_worker_are_renewed_by_one_statement_without_deadlock(rows: Rows) -> None:
    conversations = [uuid4() for _ in range(50)]
    await rows.fold(*conversations, seq=2)
    agenda = rows.agenda()
    claims = await agenda.claim(50)

    async def renew() -> None:
        for _ in range(20):
            assert len(await agenda.extend(claims[::-1])) == 50

    async def fold() -> None:
        for seq in range(3, 23):
            await rows.fold(*conversations, seq=seq)

    await asyncio.gather(renew(), fold())


async def test_hints_name_the_conversation_or_say_that_the_agenda_changed(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, agenda = uuid4(), rows.agenda()
    monkeypatch.setattr("infra.agenda.HINT_S", PATIENCE_S)
    async with asyncio.timeout(PATIENCE_S), aclosing(agenda.hints()) as hints:
        assert await anext(hints) is None  # listening has begun
        await PostgresWaker(rows.database).wake(one)
        assert await anext(hints) == one
        await rows.fold(one, seq=2, announce=True)
        assert await anext(hints) is None
        claim = await held(agenda)
        await agenda.release(claim, pause_s=0, failed=False)
        assert await anext(hints) is None
        claim = await held(agenda)
        assert await agenda.finish(claim, 2, in_seconds(LEASE_S))  # wakes nobody: workers look every few seconds anyway
        await rows.fold(one, seq=3, at_once=False, due_at=in_seconds(1), announce=True)
        assert await anext(hints) is None
        async with rows.database.connection() as connection:
            await connection.execute("select pg_notify('wake', 'what somebody else says')")
        assert await anext(hints) is None


async def test_trouble_of_any_kind_is_an_agenda_that_is_away(rows: Rows) -> None:
    agenda = rows.agenda()
    async with rows.database.connection() as connection:
        await connection.execute("alter table agenda rename to elsewhere")
    with pytest.raises(AgendaUnavailable):
        await agenda.claim(1)
    with pytest.raises(AgendaUnavailable):
        await agenda.extend([])


async def test_h6_nobody_waits_long_for_a_hint(rows: Rows) -> None:
    async with Database(rows.database._dsn, max_connections=1) as database, database.connection():
        await PostgresWaker(database).wake(uuid4())


async def test_the_claims_of_many_parked_conversations_use_the_index(rows: Rows) -> None:
    await rows.fold(*(uuid4() for _ in range(3_000)), seq=6, at_once=False, due_at=in_seconds(3_600))
    due = uuid4()
    await rows.fold(due, seq=2)
    async with rows.database.connection() as connection:
        await connection.execute("analyze agenda")
        values = {"kind": "turn", "token": uuid4(), "limit": 64, "lease": 8.0}
        plan = await (await connection.execute(f"explain {_CLAIM}", values)).fetchall()
    assert any("agenda_kind_wake_at_idx" in line for (line,) in plan), plan
    assert await claimed(rows.agenda(), 64) == {due}


async def test_a_sweep_forgets_what_owes_nothing_and_nothing_else(rows: Rows) -> None:
    idle, due, held, ahead, left = (uuid4() for _ in range(5))
    agenda = rows.agenda()
    await rows.fold(left, seq=3, at_once=False)
    assert await rows.agenda(lease_s=-7_200).claim_hinted(left) is not None  # by one that died two hours ago
    await rows.fold(idle, seq=3, at_once=False)
    await rows.fold(due, seq=3)
    await rows.fold(held, seq=3, at_once=False)
    assert await agenda.claim_hinted(held) is not None
    known_here = await agenda.claim_hinted(ahead)
    assert known_here is not None
    assert await agenda.finish(known_here, 5, None)
    await agenda.sweep()
    async with rows.database.connection() as connection:
        kept = await (await connection.execute("select conversation_id from agenda")).fetchall()
    assert {row[0] for row in kept} == {due, held, ahead}


async def test_a_sweep_waits_for_nobody_and_leaves_a_row_that_somebody_has_locked(rows: Rows) -> None:
    idle, locked = uuid4(), uuid4()
    await rows.fold(idle, locked, seq=3, at_once=False)
    async with rows.database.connection() as connection, connection.transaction():
        await connection.execute("set local idle_in_transaction_session_timeout = 0")
        await connection.execute("select from agenda where conversation_id = %s for update", [locked])
        await rows.agenda().sweep()
        kept = await (await connection.execute("select conversation_id from agenda")).fetchall()
    assert {row[0] for row in kept} == {locked}
    await rows.agenda().sweep()
    async with rows.database.connection() as connection:
        assert await (await connection.execute("select from agenda")).fetchall() == []
