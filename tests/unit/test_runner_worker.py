"""A worker: its slots, its leases, and how it goes on through trouble and stops in order."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn
from uuid import UUID, uuid4

import pytest

from commands.agent import hold, holds, lookout, worker
from commands.agent.agenda import AgendaUnavailable
from domain import events
from domain.event_store import NewEvent, StoreError
from domain.tools import tool
from domain.wire import stream_of
from infra.memory_event_store import MemoryEventStore
from tests.support.agents import Office, assert_paid, count, says
from tests.support.slack import SLACK_S

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from typing import Any

    from commands.agent.model import ModelReply, ModelRequest
    from domain.event_store import StoredEvent


@tool(gate="always")
async def dangerous() -> str:
    """Do something that a person has to allow."""
    return "done"


class Gate:
    """Replies and tools that wait for the test."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.at_once = self.most_at_once = self.stopped = 0

    async def reply(self, request: ModelRequest) -> ModelReply:
        """Wait, and reply."""
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        finally:
            self.at_once -= 1
        return says("At last")


def at(call: str, does: Callable[[], Awaitable[None]]) -> Callable[[str], Awaitable[None]]:
    """Do something at an agenda call of that name."""

    async def trouble(name: str) -> None:
        if name == call:
            await does()

    return trouble


def claims_left(office: Office) -> list[UUID]:
    return [one for one, row in office.agenda.rows.items() if row.claimed_by]


async def quiet(office: Office) -> None:
    """Wait until all hints are taken in, and nobody asks the agenda for anything."""
    asked = -1
    while asked != len(office.agenda.calls):
        asked = len(office.agenda.calls)
        for _ in range(50):
            await asyncio.sleep(0)


@pytest.fixture
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for what is away, or after what failed."""
    monkeypatch.setattr(lookout, "UNAVAILABLE_PAUSE_S", 0)
    monkeypatch.setattr(hold, "OUTAGE_PAUSE_S", 0)
    monkeypatch.setattr(hold, "FAILED_PAUSE_S", 0)


async def test_more_work_than_slots_is_all_done_and_never_more_at_once() -> None:
    office, gate = Office(), Gate()
    gate.open.set()
    office.model.script = [gate.reply] * 40
    one_slot = office.worker(concurrency=1)
    conversations = [await office.start("One") for _ in range(10)]
    async with office.working(one_slot):
        for one in conversations:
            await office.say(one, "Two")  # hints that come when there is no slot
            await asyncio.sleep(0)
        for one in conversations:
            await office.rests(one)
    for one in conversations:
        assert_paid(await office.log(one))
    assert gate.most_at_once == 1


async def test_h9_a_deadline_is_kept_while_there_is_no_free_slot_and_its_turn_goes_on_when_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "DEADLINES_EVERY_S", 0.01)
    monkeypatch.setattr(hold, "FOLDED_S", 0)
    office, gate = Office(tools=(dangerous,)), Gate()
    office.model.script = [says("", ("dangerous", {}))] * 3 + [gate.reply] * 5
    async with office.working(office.worker(concurrency=2)):
        parked = [await office.start("Go") for _ in range(3)]
        for one in parked:
            await office.rests(one)
        for _ in range(2):
            await office.start("Wait")
        await office.model.was_asked(5)
        office.clock.time += timedelta(hours=2)
        for one in parked:
            await office.until(one, lambda log: count(log, events.Resolution) == 1)
        assert len(office.model.requests) == 5
        gate.open.set()
        for one in parked:
            await office.turns_end(one)
            await office.rests(one)
            assert_paid(log := await office.log(one))
            assert count(log, events.TurnResumed) == 0
    assert gate.most_at_once == 2


async def test_h12_a_thousand_parked_conversations_hold_nothing_and_each_is_answered() -> None:
    office = Office(tools=(dangerous,))
    office.model.script = [says("", ("dangerous", {}))] * 1_000
    async with office.working():
        conversations = [await office.start("Go") for _ in range(1_000)]
        for one in conversations:
            await office.rests(one)
        await quiet(office)
        names = [task.get_name() for task in asyncio.all_tasks()]
        assert [name for name in names if name.startswith(("conversation", "listening", "call_", "model"))] == []
        assert claims_left(office) == []
        asked = len(office.agenda.calls)
        office.clock.time += timedelta(seconds=1)
        office.agenda.hint(None)
        await office.agenda.until(lambda: "due_in" in office.agenda.calls[asked:])
        assert office.agenda.calls[asked:].count("finish") == 0, "nobody looks at what waits for people"
        for one in conversations:
            log = await office.log(one)
            call = next(event for event in log if isinstance(event, events.ToolCall))
            await office.decide(one, call.tool_call_id, outcome="approve")
        for one in conversations:
            await office.rests(one)
    for one in conversations:
        log = await office.log(one)
        assert_paid(log)
        assert count(log, events.TurnResumed) == 0


@pytest.mark.parametrize("call", ["claim", "claim_hinted", "due_in", "hints"])
async def test_a_worker_stumbles_over_what_nobody_thought_of_and_goes_on(call: str, without_pauses: None) -> None:
    class Stumbling(Office):
        stumbled = 0

    office = Stumbling()
    hints = office.agenda.hints

    def stumble() -> None:
        if office.stumbled < 3:
            office.stumbled += 1
            raise RuntimeError("nobody thought of it")

    async def trouble(name: str) -> None:
        if name == call:
            stumble()

    async def broken_hints() -> AsyncGenerator[UUID | None, None]:
        if call == "hints":
            stumble()
        async for hint in hints():
            yield hint

    office.agenda.trouble, office.agenda.hints = trouble, broken_hints  # type: ignore[method-assign]  # a broken one
    async with office.working():
        while office.stumbled < 3:
            one = await office.start("Hello")
            await office.rests(one)
        one = await office.start("Hello")
        await office.rests(one)
    assert_paid(await office.log(one))


async def test_a_message_between_the_last_look_and_the_finish_is_answered_by_the_same_worker() -> None:
    office = Office()
    said = False

    async def say() -> None:
        nonlocal said
        if not said:
            said = True
            receipt = await office.say(one, "Wait!")
            await office.agenda.until(lambda: office.agenda.rows[one].seq >= receipt.seq)

    office.agenda.trouble = at("finish", say)
    async with office.working():
        one = await office.start("Hello")
        await office.turns_end(one, 2)
        await office.rests(one)
    assert_paid(await office.log(one))
    assert len(office.agenda.finished) == 1


async def test_a_hint_for_what_is_worked_on_claims_nothing() -> None:
    office, gate = Office(), Gate()
    office.model.script = [gate.reply]
    async with office.working():
        one = await office.start("Hello")
        await office.model.was_asked(1)
        for text in ("Two", "Three"):
            await office.say(one, text)
        await quiet(office)
        before = office.agenda.calls.count("claim_hinted")
        gate.open.set()
        await office.turns_end(one, 2)
        await office.rests(one)
    assert office.agenda.calls.count("claim_hinted") == before
    assert len(office.agenda.finished) == 1
    assert_paid(await office.log(one))


async def test_t7_a_lost_lease_stops_the_work_and_nothing_is_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "RENEW_EVERY_S", 0.01)
    office, gate = Office(), Gate()
    office.model.script = [gate.reply]
    running = office.worker()
    async with office.working(running):
        one = await office.start("Hello")
        await office.model.was_asked(1)
        office.agenda.rows[one].claimed_by = uuid4()
        office.agenda.rows[one].hold_until = office.clock.time + timedelta(hours=1)
        await office.agenda.until(lambda: "release" in office.agenda.calls and not running.running)
        assert gate.stopped == 1
    assert (await office.types(one))[-1] == "turn_started"


async def test_leases_are_kept_while_work_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "RENEW_EVERY_S", 0.001)
    office, gate = Office(), Gate()
    office.model.script = [gate.reply]
    async with office.working():
        one = await office.start("Hello")
        await office.model.was_asked(1)
        for _ in range(20):
            office.agenda.calls.clear()
            await office.agenda.until(lambda: office.agenda.calls.count("extend") > 1)
            office.clock.time += timedelta(seconds=7)
            office.agenda.hint(None)
        gate.open.set()
        await office.rests(one)
    assert count(await office.log(one), events.TurnResumed) == 0


async def test_t7_a_process_that_stood_still_claims_its_own_conversation_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "RENEW_EVERY_S", 3600)
    office, gate = Office(), Gate()
    office.model.script = [gate.reply, says("Again")]
    running = office.worker()
    async with office.working(running):
        one = await office.start("Hello")
        await office.model.was_asked(1)
        office.agenda.expire_leases()
        await office.rests(one)
        assert running.running == 0
    log = await office.log(one)
    assert_paid(log)
    assert (gate.stopped, count(log, events.TurnResumed), len(office.model.requests)) == (1, 1, 2)


async def test_t7_a_worker_that_hears_late_that_its_leases_were_renewed_does_not_take_over_from_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(holds, "RENEW_EVERY_S", 0.05)
    office, gate, late = Office(), Gate(), iter([True])
    office.model.script = [gate.reply]

    async def trouble(name: str) -> None:
        if name == "extend done" and next(late, False):
            await asyncio.sleep(0.3)
            office.clock.time += timedelta(seconds=9)
            office.agenda.hint(None)

    office.agenda.trouble = trouble
    async with office.working():
        one = await office.start("Hello")
        await office.model.was_asked(1)
        await office.agenda.until(lambda: office.agenda.calls.count("extend") > 1)
        gate.open.set()
        await office.rests(one)
    log = await office.log(one)
    assert_paid(log)
    assert (count(log, events.TurnResumed), len(office.model.requests)) == (0, 1)


async def test_t7_after_an_outage_of_the_agenda_a_worker_does_not_take_over_from_itself(
    monkeypatch: pytest.MonkeyPatch, without_pauses: None
) -> None:
    monkeypatch.setattr(holds, "RENEW_EVERY_S", 0.02)
    office, gate, away = Office(), Gate(), asyncio.Event()
    office.model.script = [gate.reply]

    async def trouble(name: str) -> None:
        if away.is_set() and not name.endswith("done"):
            raise AgendaUnavailable("away")

    office.agenda.trouble = trouble
    async with office.working():
        one = await office.start("Hello")
        await office.model.was_asked(1)
        away.set()
        office.clock.time += timedelta(seconds=9)
        asked = len(office.agenda.calls)
        while office.agenda.calls[asked:].count("extend") < 3:
            office.agenda.hint(None)
            await asyncio.sleep(0.01)
        away.clear()
        office.agenda.hint(None)
        gate.open.set()
        await office.rests(one)
    log = await office.log(one)
    assert_paid(log)
    assert (gate.stopped, count(log, events.TurnResumed), len(office.model.requests)) == (0, 0, 1)


async def test_t7_a_stopping_worker_hands_all_back_without_a_take_over() -> None:
    office, gate = Office(), Gate()
    office.model.script = [gate.reply] * 3
    async with office.working():
        conversations = [await office.start("Hello") for _ in range(3)]
        await office.model.was_asked(3)
        gate.open.set()
    assert claims_left(office) == []
    async with office.working():
        for one in conversations:
            await office.rests(one)
            assert_paid(await office.log(one))
            assert count(await office.log(one), events.TurnResumed) == 0
    assert len(office.model.requests) == 3


async def test_t7_what_takes_too_long_is_cut_off_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "DRAIN_S", 0.02)
    monkeypatch.setattr(holds, "ABANDON_S", 30)  # of which what can be stopped needs a moment, on any machine
    stuck = asyncio.Event()

    async def stubborn() -> str:
        """Go on whatever happens."""
        while not stuck.is_set():
            try:
                await stuck.wait()
            except asyncio.CancelledError:
                continue
        return "done"

    office, gate = Office(tools=(stubborn,)), Gate()
    office.model.script = [gate.reply, says("", ("stubborn", {}))]
    async with office.working():
        replying = await office.start("Hello")
        await office.model.was_asked(1)
        running = await office.start("Go")
        await office.until(running, lambda seen: count(seen, events.ToolCall) == 1)
        stopped_at = time.monotonic()
    assert time.monotonic() - stopped_at < 5 + SLACK_S
    stuck.set()
    assert claims_left(office) == [running], "its tool may run on: whoever comes next takes over"
    assert count(await office.log(replying), events.AssistantMsg) == 0


async def test_t7_a_claim_that_comes_while_the_worker_stops_is_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "LAST_CLAIMS_S", 60)
    office = Office()
    await office.start("Hello")
    stopping = asyncio.Event()
    claimed = False

    async def slowly() -> None:
        nonlocal claimed
        claimed = True
        stopping.set()
        for _ in range(20):
            await asyncio.sleep(0)

    office.agenda.trouble = at("claim done", slowly)
    async with office.working():
        await stopping.wait()
    assert claimed
    assert claims_left(office) == []


async def test_a_worker_that_stops_while_the_log_is_away_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(MemoryEventStore):
        away = False

        async def append(self, stream: str, *args: Any) -> Any:
            if self.away:
                raise StoreError("no answer")
            return await super().append(stream, *args)

    monkeypatch.setattr(holds, "DRAIN_S", 0.02)
    store, gate = Away(), Gate()
    office = Office(store=store)
    office.model.script = [gate.reply]
    async with office.working():
        one = await office.start("Hello")
        await office.model.was_asked(1)
        store.away = True
        gate.open.set()
    assert claims_left(office) == [one], "an append may be in flight: whoever comes next takes over"
    store.away = False
    office.agenda.expire_leases()
    async with office.working():
        await office.rests(one)
    assert_paid(await office.log(one))


async def test_t7_a_conversation_that_could_not_be_loaded_is_no_take_over(without_pauses: None) -> None:
    class Unreadable(MemoryEventStore):
        failures = 0

        async def read(self, stream: str, **window: Any) -> list[StoredEvent]:
            if self.failures:
                self.failures -= 1
                raise StoreError("no answer")
            return await super().read(stream, **window)

    store = Unreadable()
    office = Office(store=store, tools=(dangerous,))
    office.model.script = [says("", ("dangerous", {}))]
    one = await office.start("Go")
    async with office.working():
        await office.rests(one)
        call = next(event for event in await office.log(one) if isinstance(event, events.ToolCall))
        await office.decide(one, call.tool_call_id, outcome="approve")
        store.failures = 3
        await office.rests(one)
    assert store.failures == 0
    log = await office.log(one)
    assert_paid(log)
    assert count(log, events.TurnResumed) == 0


async def test_l9_a_conversation_of_the_future_is_left_alone_and_not_looked_at_in_a_circle() -> None:
    office = Office()
    one = await office.start("Hello")
    told = NewEvent(uuid4(), "from_the_future", "{}", '{"actor":{"kind":"user","id":"a"}}')
    row = office.agenda.rows[one]
    row.seq, row.at_once = 3, True
    await office.store.append(stream_of(one), [told], 2)
    running = asyncio.create_task(office.worker().run())
    await office.agenda.until(lambda: "release done" in office.agenda.calls or "release" in office.agenda.calls)
    looked = office.agenda.calls.count("claim")
    office.agenda.hint(None)
    office.agenda.hint(one)
    await office.agenda.until(lambda: office.agenda.calls.count("claim") > looked)
    running.cancel()
    await asyncio.wait([running])
    assert office.agenda.calls.count("release") == 1
    assert claims_left(office) == []
    assert len(await office.store.read(stream_of(one))) == 3


async def test_p3_a_hint_for_a_conversation_that_does_not_exist_leaves_nothing_to_do() -> None:
    office = Office()
    absent = uuid4()
    async with office.working():
        office.agenda.hint(absent)
        await office.agenda.until(lambda: "release" in office.agenda.calls)
        office.clock.time += timedelta(hours=1)
        one = await office.start("Hello")
        await office.rests(one)
    assert office.agenda.calls.count("release") == 1
    assert office.agenda.rows[absent].wake_at is None


async def test_t8_what_always_fails_ends_the_turn_and_the_next_message_works(without_pauses: None) -> None:
    office = Office()

    async def breaks(request: ModelRequest) -> NoReturn:
        raise ZeroDivisionError("a bug")

    office.model.script = [breaks] * 6
    async with office.working():
        one = await office.start("Hello")
        await office.rests(one)
        ended = (await office.log(one))[-1]
        assert isinstance(ended, events.TurnEnded)
        assert (ended.outcome, ended.reason) == ("failed", "max_attempts")
        assert len(office.model.requests) == 5
        office.model.script = []
        await office.say(one, "And now?")
        await office.rests(one)
    assert_paid(await office.log(one))


async def test_an_agenda_that_is_away_stops_nothing_that_runs(
    monkeypatch: pytest.MonkeyPatch, without_pauses: None
) -> None:
    monkeypatch.setattr(holds, "RENEW_EVERY_S", 0.001)
    office, gate = Office(), Gate()
    office.model.script = [gate.reply]
    failures = 0

    async def away(call: str) -> None:
        nonlocal failures
        if not call.endswith("done") and failures < 30:
            failures += 1
            raise AgendaUnavailable("no answer")

    async with office.working():
        one = await office.start("Hello")
        await office.model.was_asked(1)
        office.agenda.trouble = away
        renewals = office.agenda.calls.count("extend")
        gate.open.set()
        await office.rests(one)
        assert office.agenda.calls.count("extend") > renewals
    log = await office.log(one)
    assert_paid(log)
    assert (len(office.model.requests), count(log, events.TurnResumed)) == (1, 0)
