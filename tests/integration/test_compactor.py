"""What the agenda owes of compactions, worked on over a real database: once, with backoff, and never for ever."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest

from commands.agent import compactor
from commands.agent.compactor import Compactor
from commands.agent.model import ModelError
from commands.compact import request_summary
from commands.context import CommandContext
from commands.summaries import summary_events
from domain.scope import LOCAL
from domain.summary_events import SummaryRecorded
from infra.agenda import PostgresAgenda
from projections.agenda import AGENDA
from tests.support.agents import Office, ScriptedModel, says
from tests.support.read_side import LOOK_EVERY_S, ReadSide, open_read_side
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


ROW = """
select seq, seen_seq, at_once, claimed_by is not null, strikes, wake_at is not null from agenda
where kind = 'compaction' and conversation_id = %s
"""
WORDS = "word " * 200
TIGHT = {"budget_tokens": 600, "keep_recent_tokens": 300}
SUMMARY = says("## Goal\nTo talk.")
LEASE_S = 60.0
"""What one is at work on is claimed again by nobody, however slow the machine."""


@pytest.fixture
async def read_side(database_url: str) -> AsyncIterator[ReadSide]:
    async with open_read_side(database_url, [AGENDA]) as read_side:
        yield read_side


@pytest.fixture
def office(read_side: ReadSide) -> Office:
    return Office(store=read_side.store)  # type: ignore[arg-type]  # the log of the database, instead of one in memory


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    """Ask again and again until something holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not await holds():  # noqa: ASYNC110 - the database tells nobody of it
            await asyncio.sleep(LOOK_EVERY_S)


class Compacting:
    """A compactor at work on what an office owes; its model says a summary, or what the script says."""

    def __init__(self, read_side: ReadSide, office: Office) -> None:
        self.read_side, self.office = read_side, office
        self.model = ScriptedModel()
        surroundings = replace(office.surroundings, model=self.model)
        self.agenda = PostgresAgenda(read_side.database, lease_s=LEASE_S, kind="compaction")
        self.compactor = Compactor(self.agenda, surroundings)

    async def row(self, one: UUID) -> tuple[Any, ...] | None:
        """Return seq, seen_seq, at_once, whether it is claimed, strikes, whether it is to be looked at."""
        found = await self.read_side.execute(ROW, one)
        return found[0] if found else None

    async def settled(self, one: UUID) -> tuple[Any, ...]:
        """Wait until nobody has to look at the conversation."""
        await until(lambda: self._is_settled(one))
        row = await self.row(one)
        assert row is not None
        return row

    async def _is_settled(self, one: UUID) -> bool:
        row = await self.row(one)
        return row is not None and not (row[3] or row[5])

    async def recorded(self, one: UUID) -> list[SummaryRecorded]:
        """Return the summaries."""
        found = await summary_events(self.office.store, one)
        return [event for event in found if isinstance(event, SummaryRecorded)]


@asynccontextmanager
async def compacting(read_side: ReadSide, office: Office, *script: Any) -> AsyncIterator[Compacting]:
    """Run a projector and a compactor."""
    running = Compacting(read_side, office)
    running.model.script += script
    task = asyncio.create_task(running.compactor.run())
    try:
        async with read_side.projecting():
            yield running
    finally:
        task.cancel()
        await asyncio.wait([task])


async def over_budget(office: Office, turns: int = 3) -> UUID:
    """Begin a conversation that owes a compaction."""
    one = await office.start(compaction=TIGHT)
    for n in range(turns):
        office.model.script.append(says("Yes."))
        await office.say(one, f"{n}: {WORDS}")
        await (await office.runner(one)).run()
    return one


async def test_what_is_owed_is_summarised_once(read_side: ReadSide, office: Office) -> None:
    one = await over_budget(office)
    async with compacting(read_side, office, SUMMARY) as running:
        row = await running.settled(one)
        await read_side.reached(await read_side.store.head())
        assert len(await running.recorded(one)) == 1
        assert (await running.settled(one))[2] is False
        assert row[4] == 0
    assert len(running.model.requests) == 1


async def test_a_request_is_compacted_within_the_budget(read_side: ReadSide, office: Office) -> None:
    one = await over_budget(office, 2)
    async with compacting(read_side, office, SUMMARY) as running:
        await request_summary(office.conversations, one, CommandContext(LOCAL, uuid4(), "hash", keyed=False))
        await running.settled(one)
        assert len(await running.recorded(one)) == 1


async def test_what_fails_is_tried_again_with_a_growing_pause_and_not_for_ever(
    read_side: ReadSide, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compactor, "FAILED_PAUSE_S", 0.05)
    one, other = await over_budget(office), await over_budget(office)
    down = ModelError("auth", "no key", retryable=False)
    async with compacting(read_side, office, *[down] * 2, *[down] * (2 * compactor.TRIES - 2)) as running:
        for each in (one, other):
            row = await running.settled(each)
            assert row[2], "it is owed further on"
            assert await running.recorded(each) == []
    assert len(running.model.requests) == 2 * compactor.TRIES

    async with compacting(read_side, office, SUMMARY) as running:
        await office.say(one, "once more")
        await (await office.runner(one)).run()
        await until(lambda: running.recorded(one))
        assert await running.recorded(other) == [], "only what happens anew is tried again"


async def test_a_refused_summary_is_not_tried_again(read_side: ReadSide, office: Office) -> None:
    one = await over_budget(office)
    async with compacting(read_side, office, says(WORDS * 9)) as running:
        await running.settled(one)
        assert await running.recorded(one) == []
    assert len(running.model.requests) == 1


async def test_two_compactors_record_one_summary(read_side: ReadSide, office: Office) -> None:
    ones = [await over_budget(office) for _ in range(3)]
    async with compacting(read_side, office, *[SUMMARY] * 9) as one, compacting(read_side, office, *[SUMMARY] * 9):
        for each in ones:
            await one.settled(each)
        assert [len(await one.recorded(each)) for each in ones] == [1, 1, 1]


async def test_a_compactor_that_stops_leaves_its_claim_to_the_next(read_side: ReadSide, office: Office) -> None:
    one = await over_budget(office)
    asked = asyncio.Event()

    async def for_ever(request: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    async with compacting(read_side, office, for_ever):
        async with asyncio.timeout(PATIENCE_S):
            await asked.wait()
    async with compacting(read_side, office, SUMMARY) as running:
        await running.settled(one)
        assert len(await running.recorded(one)) == 1


async def test_an_erased_conversation_is_let_go(read_side: ReadSide, office: Office) -> None:
    one = await over_budget(office)

    async def erased(request: Any) -> Any:
        await read_side.store.delete(f"summary-{one}")
        await read_side.store.delete(f"conversation-{one}")
        return SUMMARY

    async with compacting(read_side, office, erased) as running:

        async def gone() -> bool:
            return await running.row(one) is None and bool(running.model.closed)

        await until(gone)
