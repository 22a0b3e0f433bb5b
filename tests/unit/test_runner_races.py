"""Turns while everything else happens: messages at every moment, outages at every call, workers against workers."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from commands.agent import append_queue, hold, lookout, news
from commands.agent.agenda import AgendaUnavailable
from domain import events
from domain.event_store import StoreError
from infra.memory_event_store import MemoryEventStore
from tests.support.agents import Office, assert_paid, count, says

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
    from uuid import UUID

    from commands.agent.model import ModelReply, ModelRequest
    from domain.event_store import Appended, Batch, NewEvent, StoredEvent


async def nothing(moment: str) -> None:
    """Let the moment pass."""


class MomentousStore(MemoryEventStore):
    """The log in memory, that says when something is about to happen, and when it has happened."""

    def __init__(self) -> None:
        super().__init__()
        self.moment: Callable[[str], Awaitable[None]] = nothing

    async def append(self, stream: str, events: Sequence[NewEvent], expected: int) -> Appended:
        await self.moment("append")
        appended = await super().append(stream, events, expected)
        await self.moment("append done")
        return appended

    async def read(self, stream: str, **window: Any) -> list[StoredEvent]:
        await self.moment("read")
        found = await super().read(stream, **window)
        await self.moment("read done")
        return found

    async def subscribe_stream(self, stream: str, after: int) -> AsyncGenerator[Batch, None]:
        await self.moment("subscribe")
        async for batch in super().subscribe_stream(stream, after):
            await self.moment("deliver")
            yield batch


class Moments:
    """Counts the moments of log, model, tools and agenda, and lets something happen at one of them."""

    def __init__(self) -> None:
        self.store = MomentousStore()
        self.office = Office(tools=(self.twice, self.once), store=self.store)
        self.worker = self.office.worker()
        self.at, self.passed = -1, 0
        self.happens: Callable[[str], Awaitable[None]] = nothing
        self.ran: list[str] = []

    async def twice(self) -> str:
        """Run in two parts."""
        await self.passes("tool")
        self.ran.append("twice")
        await self.passes("tool done")
        return "2"

    def once(self) -> str:
        """Run in a thread."""
        self.ran.append("once")
        return "1"

    async def reply(self, request: ModelRequest) -> ModelReply:
        """Want both tools first, then be done."""
        await self.passes("model")
        used = any(message["role"] == "tool" for message in request.messages)
        reply = says("Done") if used else says("", ("twice", {}), ("once", {}))
        await self.passes("model done")
        return reply

    async def passes(self, moment: str) -> None:
        """Let the moment pass; at the chosen one something happens, once."""
        self.passed += 1
        if self.passed == self.at:
            await self.happens(moment)

    async def run(self, happens: Callable[[str, UUID], Awaitable[None]], *, at: int) -> UUID:
        """Have one message answered, while that happens at that moment."""
        self.office.model.script = [self.reply] * 20
        one = await self.office.start("Hello", max_attempts=100)

        async def something(moment: str) -> None:
            await happens(moment, one)

        self.at, self.happens = at, something
        self.store.moment = self.office.agenda.trouble = self.passes
        async with self.office.working(self.worker):
            await self.office.rests(one)
            self.store.moment = self.office.agenda.trouble = nothing
            await self.office.rests(one)  # again, should it have happened just now
        return one


@pytest.fixture
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for what is away."""
    monkeypatch.setattr(append_queue, "STORE_PAUSE_S", 0)
    monkeypatch.setattr(news, "STORE_PAUSE_S", 0)
    monkeypatch.setattr(hold, "OUTAGE_PAUSE_S", 0)
    monkeypatch.setattr(hold, "FAILED_PAUSE_S", 0)
    monkeypatch.setattr(lookout, "UNAVAILABLE_PAUSE_S", 0)


async def moments_of_a_turn() -> int:
    """Count them in a run in which nothing else happens."""
    moments = Moments()

    async def never(moment: str, one: UUID) -> None:
        raise AssertionError(moment)

    one = await moments.run(never, at=-1)
    assert_paid(await moments.office.log(one))
    return moments.passed


@pytest.mark.parametrize("when_busy", ["enqueue", "steer", "interrupt"])
async def test_b1_a_message_at_every_moment_of_a_turn_costs_no_reply_and_is_answered(when_busy: str) -> None:
    for at in range(1, await moments_of_a_turn() + 1):
        moments = Moments()
        office = moments.office

        async def say(moment: str, one: UUID, office: Office = office) -> None:
            await office.say(one, "Meanwhile", when_busy=when_busy)

        one = await moments.run(say, at=at)
        log = await office.log(one)
        assert_paid(log)
        if count(log, events.UserMsg) == 1:
            continue  # this time there were fewer moments
        assert any("Meanwhile" in str(request.messages) for request in office.model.requests), at
        if when_busy != "interrupt":
            assert len(office.model.requests) == count(log, events.AssistantMsg), at
            assert sorted(moments.ran) == ["once", "twice"], at
        assert count(log, events.TurnResumed) == 0


async def test_b5_a_cancel_at_every_moment_of_a_turn_leaves_nothing_open(without_pauses: None) -> None:
    for at in range(1, await moments_of_a_turn() + 1):
        moments = Moments()

        async def stop(moment: str, one: UUID, office: Office = moments.office) -> None:
            await office.cancel(one)

        one = await moments.run(stop, at=at)
        log = await moments.office.log(one)
        assert_paid(log)
        assert count(log, events.TurnEnded) == 1
        assert count(log, events.TurnResumed) == 0


async def test_l13_an_outage_of_the_log_at_every_moment_of_a_turn_costs_no_reply(without_pauses: None) -> None:
    for at in range(1, await moments_of_a_turn() + 1):
        moments = Moments()

        async def out_of_reach(moment: str, one: UUID) -> None:
            if moment.removesuffix(" done") in ("append", "read", "subscribe", "deliver"):
                raise StoreError("no answer")

        one = await moments.run(out_of_reach, at=at)
        log = await moments.office.log(one)
        assert_paid(log)
        assert len(moments.office.model.requests) == count(log, events.AssistantMsg) == 2
        assert sorted(moments.ran) == ["once", "twice"]
        assert count(log, events.TurnResumed) == 0


async def test_t7_an_outage_of_the_agenda_at_every_moment_of_a_turn_costs_no_reply(without_pauses: None) -> None:
    for at in range(1, await moments_of_a_turn() + 1):
        moments = Moments()

        async def unavailable(moment: str, one: UUID, moments: Moments = moments) -> None:
            if moment.removesuffix(" done") in ("claim", "claim_hinted", "extend", "finish", "release", "due_in"):
                if moment in ("claim done", "claim_hinted done") and not moments.worker.running:
                    moments.office.agenda.expire_leases()  # what was claimed nobody knows of: it has to run out
                raise AgendaUnavailable("no answer")

        one = await moments.run(unavailable, at=at)
        log = await moments.office.log(one)
        assert_paid(log)
        assert len(moments.office.model.requests) == count(log, events.AssistantMsg) == 2
        assert sorted(moments.ran) == ["once", "twice"]


async def test_t7_two_workers_raced_by_hints_pay_each_turn_once() -> None:
    office = Office()
    chance = random.Random(7)

    async def any_time(call: str) -> None:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)

    office.agenda.trouble = any_time
    async with office.working(office.worker(concurrency=60), office.worker(concurrency=60)):
        conversations = [await office.start("One", "Two") for _ in range(60)]
        for one in conversations:
            await office.rests(one)
    logs = [await office.log(one) for one in conversations]
    for log in logs:
        assert_paid(log)
        assert count(log, events.TurnResumed) == 0
    assert len(office.model.requests) == sum(count(log, events.AssistantMsg) for log in logs)


@pytest.mark.parametrize("seed", range(60))
async def test_t7_two_workers_that_lose_their_leases_at_any_moment_pay_each_turn_once(
    seed: int, without_pauses: None
) -> None:
    chance = random.Random(seed)
    moments = Moments()
    office, losses = moments.office, 0

    async def any_time(moment: str) -> None:
        nonlocal losses
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        if losses < 20 and chance.random() < 0.1:
            losses += 1
            office.agenda.expire_leases()

    office.model.script = [moments.reply] * 100
    one = await office.start("Hello", max_attempts=100)
    moments.store.moment = office.agenda.trouble = any_time
    moments.passes = any_time  # type: ignore[method-assign]  # of model and tools, which are bound already
    async with office.working(office.worker(), office.worker()):
        for n in range(3):
            await office.say(one, f"Message {n}", when_busy=chance.choice(["enqueue", "steer", "interrupt"]))
            await any_time("")
        await office.rests(one)
    moments.store.moment = office.agenda.trouble = nothing
    log = await office.log(one)
    assert_paid(log)
    assert count(log, events.TurnResumed) <= losses
    stopped = sum(isinstance(event, events.TurnEnded) and event.outcome == "cancelled" for event in log)
    assert len(office.model.requests) <= count(log, events.AssistantMsg) + count(log, events.TurnResumed) + stopped
