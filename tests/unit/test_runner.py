"""The runner's loop: what it starts, what it never misses, and what it leaves behind."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from commands.agent import news
from commands.agent.model import ModelError, ModelReply
from commands.agent.runner import Rest
from domain import events
from domain.errors import ConversationNotFound, Superseded, UnknownEventType
from domain.event_store import NewEvent, SlowSubscriber
from domain.parts import text_of
from domain.tools import ToolContext, tool
from domain.wire import stream_of
from infra.memory_event_store import MemoryEventStore
from tests.support.agents import START, Office, assert_paid, count, says

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from uuid import UUID

    from commands.agent.model import ModelRequest
    from commands.agent.runner import Runner
    from domain.event_store import Batch
    from domain.scope import Actor, Scope


class Gates:
    """Tools and replies that wait until the test lets them go on."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.ran: list[str] = []
        self.stopped = 0

    async def slow(self) -> str:
        """Wait for the test."""
        self.ran.append("slow")
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        return "at last"

    async def quick(self) -> str:
        """Do not wait."""
        self.ran.append("quick")
        return "at once"

    async def reply(self, request: ModelRequest) -> ModelReply:
        """Reply when the test wants it."""
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        return says("At last")


@tool(gate="always")
async def dangerous() -> str:
    """Do something that a person has to allow."""
    return "done"


@tool(executor="human")
def ask(question: str) -> str:  # type: ignore[empty-body]  # a person answers
    """Ask the person."""


def gated_office() -> tuple[Office, Gates]:
    gates = Gates()
    return Office(tools=(gates.slow, gates.quick, dangerous, ask)), gates


async def running(office: Office, conversation_id: UUID) -> tuple[Runner, asyncio.Task[Rest | None]]:
    """Start a runner."""
    runner = await office.runner(conversation_id)
    return runner, asyncio.create_task(runner.run())


async def pending(office: Office, conversation_id: UUID) -> str:
    """Wait for a suspension and return the call's id."""
    await office.until(conversation_id, lambda seen: count(seen, events.Suspension) > 0)
    log = await office.log(conversation_id)
    return next(event.tool_call_id for event in log if isinstance(event, events.Suspension))


async def test_t1_a_turn_is_paid_and_nothing_of_it_is_left() -> None:
    office = Office()
    one = await office.start("Hello")
    before = asyncio.all_tasks()
    runner = await office.runner(one)
    assert await runner.run() == Rest(5, None)
    assert await office.types(one) == [
        "conversation_started",
        "user_msg",
        "turn_started",
        "assistant_msg",
        "turn_ended",
    ]
    assert asyncio.all_tasks() == before
    assert (runner.clean, office.live.shown, office.model.closed) == (True, {}, 1)


async def test_h12_what_waits_for_people_rests_until_its_deadline_and_holds_no_task() -> None:
    office, _ = gated_office()
    office.model.script = [says("", ("dangerous", {}), ("ask", {"question": "?"}))]
    one = await office.start("Go", approval_timeout_s=60)
    before = asyncio.all_tasks()
    assert await (await office.runner(one)).run() == Rest(8, START + timedelta(seconds=60))
    assert asyncio.all_tasks() == before
    office.clock.time += timedelta(seconds=61)
    assert await (await office.runner(one)).run() == Rest(14, None)
    assert_paid(await office.log(one))


async def test_t14_while_a_slow_tool_runs_an_approval_starts_its_sibling_at_once() -> None:
    office, gates = gated_office()
    office.model.script = [says("", ("slow", {}), ("dangerous", {}), ("quick", {}))]
    one = await office.start("Go")
    _, run = await running(office, one)
    call = await pending(office, one)
    await office.decide(one, call, outcome="approve")
    await office.until(one, lambda seen: count(seen, events.ToolResult) == 2)
    assert gates.ran == ["slow", "quick"]
    gates.open.set()
    assert await run == Rest(14, None)
    assert_paid(await office.log(one))


async def test_t14_a_deadline_acts_while_a_slow_tool_runs() -> None:
    office, gates = gated_office()
    office.model.script = [says("", ("slow", {}), ("dangerous", {}))]
    one = await office.start("Go", approval_timeout_s=0.01)
    _, run = await running(office, one)
    await pending(office, one)
    office.clock.time += timedelta(seconds=0.01)
    await office.until(one, lambda seen: count(seen, events.Resolution) == 1)
    assert count(await office.log(one), events.ToolResult) == 1
    gates.open.set()
    await run
    assert_paid(await office.log(one))


@pytest.mark.parametrize("busy_with", ["tool", "model"])
async def test_t14_a_cancel_stops_what_runs_and_nothing_more_is_appended(busy_with: str) -> None:
    office, gates = gated_office()
    office.model.script = [says("", ("slow", {}))] if busy_with == "tool" else [gates.reply]
    one = await office.start("Go")
    _, run = await running(office, one)
    await office.until(one, lambda seen: busy_with == "model" or count(seen, events.ToolCall) == 1)
    await office.model.was_asked(1)
    receipt = await office.cancel(one)
    assert await run == Rest(receipt.seq, None)
    assert gates.stopped == 1
    assert office.live.shown == {}
    assert_paid(await office.log(one))


async def test_b2_a_steering_message_acts_while_a_slow_tool_runs() -> None:
    office, gates = gated_office()
    office.model.script = [says("", ("slow", {}))]
    one = await office.start("Go")
    _, run = await running(office, one)
    await office.until(one, lambda seen: count(seen, events.ToolCall) == 1)
    await office.say(one, "In French", when_busy="steer")
    gates.open.set()
    await run
    assert office.model.requests[1].messages[-1]["content"] == "In French"
    assert count(await office.log(one), events.TurnStarted) == 1


async def test_t14_a_scope_that_cannot_be_looked_up_ends_its_call_and_not_its_sibling() -> None:
    class Directory(Office):
        asked = 0

        async def resolve(self, tenant: str, actor: Actor) -> Scope:
            self.asked += 1
            if self.asked == 2:
                raise LookupError("a secret of ours")
            return await super().resolve(tenant, actor)

    gates = Gates()
    office = Directory(tools=(gates.slow, gates.quick))
    office.model.script = [says("", ("slow", {}), ("quick", {}))]
    one = await office.start("Go")
    _, run = await running(office, one)
    await office.until(one, lambda seen: count(seen, events.ToolResult) == 1)
    gates.open.set()
    await run
    log = await office.log(one)
    assert_paid(log)
    (failed, ended) = [event for event in log if isinstance(event, events.ToolResult)]
    assert (failed.status, ended.status, gates.ran) == ("error", "ok", ["slow"])
    assert "secret" not in text_of(failed.content)


async def test_t14_a_model_that_fails_just_when_its_turn_was_cancelled_is_heard_no_more() -> None:
    office, _ = gated_office()

    async def cancelled_meanwhile(request: ModelRequest) -> ModelReply:
        await office.cancel(one)
        raise ModelError("unavailable", "gone", retryable=False)

    office.model.script = [cancelled_meanwhile]
    one = await office.start("Go")
    assert await (await office.runner(one)).run() == Rest(4, None)
    assert_paid(await office.log(one))


async def test_p3_an_erased_conversation_stops_its_runner_and_its_upstream() -> None:
    office, gates = gated_office()
    office.model.script = [gates.reply]
    one = await office.start("Go")
    _, run = await running(office, one)
    await office.model.was_asked(1)
    await office.store.delete(stream_of(one))
    with pytest.raises(ConversationNotFound):
        await run
    assert (gates.stopped, office.live.shown) == (1, {})


async def test_p3_a_reply_to_an_erased_conversation_is_recorded_nowhere() -> None:
    office = Office()

    async def erased_meanwhile(request: ModelRequest) -> ModelReply:
        await office.store.delete(stream_of(one))
        return says("Too late")

    office.model.script = [erased_meanwhile]
    one = await office.start("Go")
    with pytest.raises(ConversationNotFound):
        await (await office.runner(one)).run()
    assert office.live.shown == {}


async def test_l9_a_runner_that_meets_an_unknown_event_steps_back_and_writes_nothing() -> None:
    office, gates = gated_office()
    office.model.script = [says("", ("slow", {}))]
    one = await office.start("Go")
    runner, run = await running(office, one)
    await office.until(one, lambda seen: count(seen, events.ToolCall) == 1)
    before = await office.types(one)
    told = NewEvent(uuid4(), "from_the_future", "{}", '{"actor":{"kind":"user","id":"a"}}')
    await office.store.append(stream_of(one), [told], len(before))
    with pytest.raises(UnknownEventType):
        await run
    assert [event.type for event in await office.store.read(stream_of(one))] == [*before, "from_the_future"]
    assert (gates.stopped, runner.clean) == (1, False)


async def test_w3_a_runner_that_was_cut_off_from_new_events_listens_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf(MemoryEventStore):
        subscribed = 0

        async def subscribe_stream(self, stream: str, after: int) -> AsyncGenerator[Batch, None]:
            Deaf.subscribed += 1
            if Deaf.subscribed < 4:
                raise [SlowSubscriber("too slow"), OSError("unheard of"), RuntimeError("a bug")][Deaf.subscribed - 1]
            async for batch in super().subscribe_stream(stream, after):
                yield batch

    monkeypatch.setattr(news, "STORE_PAUSE_S", 0)
    gates = Gates()
    office = Office(store=Deaf())
    office.model.script = [gates.reply]
    one = await office.start("Go")
    _, run = await running(office, one)
    await office.model.was_asked(1)
    await office.cancel(one)
    await run
    assert gates.stopped == 1


async def test_t13_the_thread_of_a_tool_is_not_left_waiting_when_its_runner_stops() -> None:
    begun, waits, told = threading.Event(), threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def checkpointed(ctx: ToolContext) -> str:
        """Record a step when it is too late."""
        begun.set()
        waits.wait(60)
        try:
            ctx.step_sync("late", lambda: 1)
        except BaseException as error:
            raised.append(error)
        told.set()
        return "done"

    office = Office(tools=(checkpointed,))
    office.model.script = [says("", ("checkpointed", {}))]
    one = await office.start("Go")
    runner, run = await running(office, one)
    assert await asyncio.to_thread(begun.wait, 60)
    runner.abandon()
    assert await run is None
    waits.set()
    assert await asyncio.to_thread(told.wait, 60)
    assert raised
    assert "tool_step" not in await office.types(one)


async def test_t13_a_decision_that_waits_when_its_runner_ends_is_refused() -> None:
    office = Office()
    one = await office.start("Go")
    runner = await office.runner(one)
    waiting = asyncio.create_task(runner._queue.record(lambda conversation, now: None))
    await asyncio.sleep(0)
    runner.abandon()
    assert await runner.run() is None
    with pytest.raises(Superseded):
        await waiting
    with pytest.raises(Superseded):
        await runner._queue.record(lambda conversation, now: None)


async def test_t7_a_runner_that_lets_go_records_what_ran_and_starts_nothing_more() -> None:
    office, gates = gated_office()
    office.model.script = [says("", ("slow", {}))]
    one = await office.start("Go")
    runner, run = await running(office, one)
    await office.until(one, lambda seen: count(seen, events.ToolCall) == 1)
    runner.let_go()
    gates.open.set()
    assert await run is None
    assert (runner.clean, len(office.model.requests)) == (True, 1)
    assert (await office.types(one))[-1] == "tool_result"
    await (await office.runner(one)).run()
    assert_paid(await office.log(one))
    assert count(await office.log(one), events.TurnResumed) == 0


@pytest.mark.parametrize(("busy_with", "clean"), [("tool", False), ("model", True)])
async def test_t7_a_runner_that_abandons_appends_nothing_and_says_whether_something_may_run_on(
    busy_with: str, clean: bool
) -> None:
    office, gates = gated_office()
    office.model.script = [says("", ("slow", {}))] if busy_with == "tool" else [gates.reply]
    one = await office.start("Go")
    runner, run = await running(office, one)
    await office.until(one, lambda seen: busy_with == "model" or count(seen, events.ToolCall) == 1)
    await office.model.was_asked(1)
    before = await office.types(one)
    runner.abandon()
    assert await run is None
    assert (await office.types(one), runner.clean, gates.stopped) == (before, clean, 1)
    assert office.live.shown == {}


async def test_h9_a_clock_that_goes_back_makes_nobody_run_in_circles() -> None:
    office, _ = gated_office()
    office.model.script = [says("", ("dangerous", {}))]
    one = await office.start("Go", approval_timeout_s=60)
    await (await office.runner(one)).run()
    times = iter([START + timedelta(seconds=61), *[START] * 10])
    office.clock.now = lambda: next(times)  # type: ignore[method-assign]  # a clock that is set back while it is read
    assert await (await office.runner(one)).run() == Rest(6, START + timedelta(seconds=60))


async def test_many_turns_in_one_run_keep_no_more_than_the_log() -> None:
    office = Office()
    one = await office.start("0")

    async def again(request: ModelRequest) -> ModelReply:
        await office.say(one, str(len(office.model.requests)))
        return says("Yes")

    office.model.script = [again] * 50
    runner = await office.runner(one)
    await runner.run()
    log = await office.log(one)
    assert_paid(log)
    assert count(log, events.TurnEnded) == 51
    assert len(runner.session.newest) == len(log)
