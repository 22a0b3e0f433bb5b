"""Two workers on one conversation: who goes on, who steps back, and how each of them knows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from commands.agent.hold import Hold
from commands.agent.runner import Rest
from domain import events
from domain.tools import tool
from tests.support.agents import Office, assert_paid, count, says

if TYPE_CHECKING:
    from uuid import UUID

    from commands.agent.model import ModelReply, ModelRequest
    from domain.event_envelope import ConversationEvent


class Replies:
    """Replies that come when the test wants them, and the number of those that were stopped before."""

    def __init__(self) -> None:
        self.gates = [asyncio.Event() for _ in range(5)]
        self.begun = self.stopped = 0

    async def next(self, request: ModelRequest) -> ModelReply:
        """Wait for the gate of this request."""
        gate, self.begun = self.gates[self.begun], self.begun + 1
        try:
            await gate.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        return says(f"Reply {self.gates.index(gate)}")


@tool(gate="always")
async def dangerous() -> str:
    """Do something that a person has to allow."""
    return "done"


def types(log: list[ConversationEvent]) -> list[str]:
    return [event.wire_type for event in log]


async def replying() -> tuple[Office, Replies, UUID]:
    office, replies = Office(tools=(dangerous,)), Replies()
    office.model.script = [replies.next] * 5
    return office, replies, await office.start("Hello")


async def test_t7_who_takes_over_says_so_before_anything_else_and_the_former_holder_stops() -> None:
    office, replies, one = await replying()
    former = await office.runner(one)
    running = asyncio.create_task(former.run())
    await office.model.was_asked(1)
    second = asyncio.create_task((await office.runner(one, takeover=True)).run())
    assert await running is None
    assert (former.overtaken, former.clean, replies.stopped) == (True, False, 1)
    await office.model.was_asked(2)
    assert types(await office.log(one))[2:] == ["turn_started", "turn_resumed"]
    replies.gates[1].set()
    assert await second == Rest(6, None)
    log = await office.log(one)
    assert_paid(log)
    assert types(log)[2:] == ["turn_started", "turn_resumed", "assistant_msg", "turn_ended"]


async def test_t7_the_reply_of_a_superseded_worker_is_not_recorded() -> None:
    office, _, one = await replying()

    async def overtaken_meanwhile(request: ModelRequest) -> ModelReply:
        office.model.script = [says("The other's")]
        assert await (await office.runner(one, takeover=True)).run() == Rest(6, None)
        return says("Mine")

    office.model.script = [overtaken_meanwhile]
    former = await office.runner(one)
    assert await former.run() is None
    assert former.overtaken
    log = await office.log(one)
    assert_paid(log)
    assert types(log)[2:] == ["turn_started", "turn_resumed", "assistant_msg", "turn_ended"]


@pytest.mark.parametrize("takeover", [True, False])
async def test_t7_a_worker_that_wakes_after_an_hour_appends_nothing(takeover: bool) -> None:
    """It had claimed and loaded the conversation; meanwhile its turn was paid, and another message came."""
    office, _, one = await replying()
    office.model.script = []
    asleep = await office.runner(one, takeover=takeover)
    await (await office.runner(one)).run()
    receipt = await office.say(one, "And now?")
    assert await asleep.run() is None
    assert asleep.overtaken
    assert len(await office.log(one)) == receipt.seq
    assert len(office.model.requests) == 1


async def test_t7_of_two_that_start_the_same_turn_one_calls_the_model() -> None:
    office, replies, one = await replying()
    runners = [await office.runner(one) for _ in range(2)]
    tasks = [asyncio.create_task(runner.run()) for runner in runners]
    done, (winner,) = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == [None]
    replies.gates[0].set()
    assert await winner == Rest(5, None)
    assert [runner.overtaken for runner in runners].count(True) == 1
    assert len(office.model.requests) == 1
    assert_paid(await office.log(one))


async def test_t7_going_on_after_an_answer_is_no_take_over() -> None:
    office, _, one = await replying()
    office.model.script = [says("", ("dangerous", {}))]
    await (await office.runner(one)).run()
    call = next(event for event in await office.log(one) if isinstance(event, events.ToolCall))
    await office.decide(one, call.tool_call_id, outcome="approve")
    assert isinstance(await (await office.runner(one)).run(), Rest)
    log = await office.log(one)
    assert_paid(log)
    assert count(log, events.TurnResumed) == 0


async def test_t7_what_people_do_with_turns_is_not_taken_for_another_worker() -> None:
    office, replies, one = await replying()
    runner = await office.runner(one)
    await office.cancel(one)  # begins and ends a turn, in one append
    await office.say(one, "Second")
    running = asyncio.create_task(runner.run())
    await office.model.was_asked(1)
    await office.say(one, "Third", when_busy="interrupt")
    await office.model.was_asked(2)
    await office.cancel(one)
    await office.say(one, "Fourth")
    await office.model.was_asked(3)
    replies.gates[2].set()
    assert isinstance(await running, Rest)
    assert not runner.overtaken
    log = await office.log(one)
    assert_paid(log)
    assert [event.outcome for event in log if isinstance(event, events.TurnEnded)] == ["cancelled"] * 3 + ["completed"]


async def test_t7_a_take_over_without_an_open_turn_appends_nothing_of_its_own() -> None:
    office, replies, one = await replying()
    replies.gates[0].set()
    assert await (await office.runner(one, takeover=True)).run() == Rest(5, None)
    assert count(await office.log(one), events.TurnResumed) == 0


async def test_t7_two_that_take_over_at_once_do_not_both_go_on() -> None:
    office, replies, one = await replying()
    first = asyncio.create_task((await office.runner(one)).run())
    await office.model.was_asked(1)
    runners = [await office.runner(one, takeover=True) for _ in range(2)]
    tasks = [asyncio.create_task(runner.run()) for runner in runners]
    done, (winner,) = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == [None]
    assert await first is None
    replies.gates[1].set()
    await winner
    log = await office.log(one)
    assert_paid(log)
    assert count(log, events.TurnResumed) == 1


async def test_t8_a_turn_that_was_resumed_five_times_without_progress_fails() -> None:
    office, _, one = await replying()
    for _ in range(6):
        runner = await office.runner(one, takeover=True)
        running = asyncio.create_task(runner.run())
        await asyncio.wait(
            [running, asyncio.create_task(office.model.was_asked(len(office.model.requests) + 1))],
            return_when=asyncio.FIRST_COMPLETED,
        )
        runner.abandon()
        await running
    log = await office.log(one)
    assert_paid(log)
    ended = log[-1]
    assert isinstance(ended, events.TurnEnded)
    assert (ended.outcome, ended.reason, count(log, events.TurnResumed)) == ("failed", "max_attempts", 5)
    assert len(office.model.requests) == 5
    await office.say(one, "And now?")
    office.model.script = []
    await (await office.runner(one)).run()
    assert_paid(await office.log(one))


async def test_t7_who_was_overtaken_and_has_lost_the_claim_steps_back() -> None:
    office, replies, one = await replying()
    claim = await office.agenda.claim_hinted(one)
    assert claim is not None
    former = asyncio.create_task(Hold(claim, office.agenda, office.surroundings).work())
    await office.model.was_asked(1)
    office.agenda.expire_leases()
    claim = await office.agenda.claim_hinted(one)
    assert claim is not None
    second = asyncio.create_task(Hold(claim, office.agenda, office.surroundings).work())
    await office.model.was_asked(2)
    await former
    assert not second.done()
    replies.gates[1].set()
    await second
    log = await office.log(one)
    assert_paid(log)
    assert (count(log, events.TurnResumed), len(office.model.requests)) == (1, 2)


async def test_t4_what_was_looked_at_before_the_claim_is_looked_at_again_where_something_would_run() -> None:
    ran: list[str] = []

    @tool(gate="always")
    async def once() -> str:
        """Run once."""
        ran.append("once")
        return "done"

    office = Office(tools=(once,))
    office.model.script = [says("", ("once", {}))]
    one = await office.start("Go")
    await (await office.runner(one)).run()
    call = next(event for event in await office.log(one) if isinstance(event, events.ToolCall))
    await office.decide(one, call.tool_call_id, outcome="approve")
    early = await office.conversations.load(one)
    await (await office.runner(one)).run()  # of a worker that heard of it sooner, and is done already
    claim = await office.agenda.claim_hinted(one)
    assert claim is not None
    await Hold(claim, office.agenda, office.surroundings, early).work()
    log = await office.log(one)
    assert_paid(log)
    assert (ran, len(office.model.requests), count(log, events.TurnResumed)) == (["once"], 2, 0)


async def test_t7_a_turn_that_was_paid_between_an_early_look_and_the_claim_is_not_taken_over() -> None:
    office = Office(tools=(dangerous,))
    office.model.script = [says("", ("dangerous", {}))]
    one = await office.start("Go")
    early = await office.conversations.load(one)
    rest = await (await office.runner(one)).run()
    assert rest is not None
    claim = await office.agenda.claim_hinted(one)
    assert claim is not None
    await Hold(claim, office.agenda, office.surroundings, early).work()
    assert count(await office.log(one), events.TurnResumed) == 0
    assert office.agenda.finished == [(one, rest.seq, rest.due_at)]


async def test_t7_who_lost_the_start_of_a_turn_but_holds_the_claim_takes_over() -> None:
    """The former holder slept between its claim and its `turn_started`: it wakes up just after it lost the claim."""
    office, replies, one = await replying()
    former = await office.runner(one)
    await office.agenda.claim_hinted(one)
    office.agenda.expire_leases()
    claim = await office.agenda.claim_hinted(one)
    assert claim is not None
    sleeper = asyncio.Event()

    async def asleep() -> Rest | None:
        await sleeper.wait()
        return await former.run()

    woken = asyncio.create_task(asleep())
    hold = Hold(claim, office.agenda, office.surroundings)
    loading = office.conversations.load

    async def slowly(conversation_id: UUID) -> object:
        session = await loading(conversation_id)
        if not sleeper.is_set():
            sleeper.set()
            await office.model.was_asked(1)  # the former holder was faster
        return session

    office.conversations.load = slowly  # type: ignore[method-assign, assignment]  # the moment that matters
    holding = asyncio.create_task(hold.work())
    assert await woken is None
    await office.model.was_asked(2)
    replies.gates[1].set()
    await holding
    log = await office.log(one)
    assert_paid(log)
    assert types(log)[2:] == ["turn_started", "turn_resumed", "assistant_msg", "turn_ended"]
    assert [finished[1] for finished in office.agenda.finished] == [6]
