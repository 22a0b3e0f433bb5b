"""Deadlines act with every process alive, and when all were dead: in the log, in both views, for whoever answers late.

How late they are is measured by `tests.benchmarks.bench_deadlines`; here the bounds are generous.
"""

from __future__ import annotations

import asyncio
import signal
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.support.model_script import Rule, Step, call, calls, gate, says
from tests.support.slack import SLACK_S
from tests.support.system import Conversation, System, of_type, types
from tests.support.workers import assert_paid_once, front, workers

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer
    from tests.support.system import Event
    from tests.support.workers import Workers

__all__ = ["front", "workers"]

EMAIL = call("send_email", {"to": "ada@example.org", "body": "hi"})
SLOW = call("wait_for", {"gate": "never"})
IDLE_S, LOADED_S = 0.25, 1.0
REPLACED_WITHIN_S = SLACK_S + 1
SLOTS = 4


@pytest.fixture(autouse=True)
def script(model_server: ModelServer) -> None:
    """The model asks for an email, and says Done to its result."""
    tokens = [step for n in range(600) for step in (Step(delta={"content": f"{n} "}), Step(pause_s=0.1))]
    model_server.rule(
        Rule(answer=says(*tokens, gate("never")), last_text="^Speak$"),
        Rule(answer=says("Done"), last_role="tool"),
        Rule(answer=says(calls(SLOW, EMAIL | {"index": 1})), last_text="^Both$"),
        Rule(answer=says(calls(EMAIL)), last_role="user"),
    )


async def parked(front: System, **settings: Any) -> tuple[Conversation, str]:
    """A conversation that waits for an approval, and the call's id."""
    conversation = await front.start("Write to Ada", **settings)
    return conversation, of_type(await conversation.suspends(), "suspension")[0]["tool_call_id"]


async def reschedule(conversation: Conversation, call_id: str, expires_at: datetime | None) -> None:
    """Give the call another deadline, or none."""
    status, said = await _rescheduled(conversation, call_id, expires_at)
    assert status == 200, said


async def reschedule_soon(conversation: Conversation, call_id: str, seconds: float) -> datetime:
    """Give the call a deadline so soon and return it; a later one where it had passed before it came to be one."""
    while True:
        status, said = await _rescheduled(conversation, call_id, expires_at := in_seconds(seconds))
        if status == 200:
            return expires_at
        assert "must be in the future" in said


async def _rescheduled(conversation: Conversation, call_id: str, expires_at: datetime | None) -> tuple[int, str]:
    path = f"{conversation.system.url}{conversation.path}/tool-calls/{call_id}"
    body = {"expires_at": expires_at.isoformat() if expires_at else None}
    async with conversation.system.session.patch(path, json=body) as response:
        return response.status, await response.text()


def in_seconds(seconds: float) -> datetime:
    """A time from now, by this machine's clock, which is the database's."""
    return datetime.now(UTC) + timedelta(seconds=seconds)


async def passes(deadline: datetime) -> None:
    """Wait until a time has passed."""
    await asyncio.sleep((deadline - datetime.now(UTC)).total_seconds() + 0.1)


def lateness_s(events: list[Event]) -> float:
    """Return how long after its deadline the only call expired, by the log."""
    (resolution,) = [event for event in events if event["type"] == "resolution"]
    assert (resolution["data"]["outcome"], resolution["data"]["by"]["kind"]) == ("expired", "system")
    deadline = of_type(events, "suspension")[-1]["expires_at"]
    return (datetime.fromisoformat(resolution["occurred_at"]) - datetime.fromisoformat(deadline)).total_seconds()


async def assert_expired_everywhere(conversation: Conversation, call_id: str) -> list[Event]:
    """The log, the read model and whoever comes too late say the same."""
    events = await conversation.turn_ends()
    assert_paid_once(events)
    assert of_type(events, "tool_result")[0]["status"] == "expired"
    late = await conversation.resolve(call_id, "approve", status=409)
    assert late["type"] == "urn:rejoinder:stale"
    reached = f"min_position={events[-1]['position']}&wait_ms=30000"
    shown = await conversation.system.get(f"{conversation.path}/tool-calls?{reached}")
    assert [(one["tool_call_id"], one["status"]) for one in shown["items"]] == [(call_id, "expired")]
    return events


async def test_h9_a_deadline_acts_while_a_worker_is_idle(front: System, workers: Workers) -> None:
    async with workers.one():
        conversation, call_id = await parked(front, approval_timeout_s=0.5)
        events = await assert_expired_everywhere(conversation, call_id)
    print(f"{lateness_s(events) * 1000:.0f} ms late")
    assert 0 <= lateness_s(events) < IDLE_S + SLACK_S


async def test_h9_a_deadline_acts_while_no_worker_has_a_free_slot(
    front: System, workers: Workers, model_server: ModelServer
) -> None:
    async with workers.one(worker_concurrency=str(SLOTS)):
        waiting = [await parked(front, approval_timeout_s=0) for _ in range(SLOTS)]
        asked = len(model_server.received)
        speaking = [await front.start("Speak") for _ in range(SLOTS)]
        await model_server.requests(asked + SLOTS)
        for conversation, call_id in waiting:
            await reschedule_soon(conversation, call_id, 1)
        late = [
            lateness_s(await conversation.until(lambda seen: "tool_result" in types(seen)))
            for conversation, _ in waiting
        ]
        assert len(model_server.received) == asked + SLOTS, "nobody was free to ask the model what comes next"
        for conversation in speaking:
            await front.post(f"{conversation.path}/cancel", {}, status=202)
        for conversation, call_id in waiting:
            await assert_expired_everywhere(conversation, call_id)
    print("late by " + ", ".join(f"{one * 1000:.0f} ms" for one in late))
    assert max(late) < LOADED_S + SLACK_S


async def test_h9_a_deadline_that_passed_while_everybody_was_dead_acts_when_one_process_starts(
    workers: Workers, model_server: ModelServer
) -> None:
    async with aiohttp.ClientSession() as session:
        async with workers.one("all") as first:
            conversation, call_id = await parked(System(first.url, session))
            await workers.rest()
            await first.kill()
        async with workers.one("api,projector") as api:  # who would act is dead, however short the deadline is
            rescheduled = Conversation(System(api.url, session), conversation.id)
            deadline = await reschedule_soon(rescheduled, call_id, 0.5)
            left = await rescheduled.events()
            await rescheduled.shown("tool-calls")
        await passes(deadline)
        began = time.monotonic()
        async with workers.one("all") as second:
            again = Conversation(System(second.url, session), conversation.id)
            events = await assert_expired_everywhere(again, call_id)
    print(f"{time.monotonic() - began:.2f} s from the start of a process to the end of the turn in both views")
    assert types(events)[: len(left)] == types(left)
    assert left[-1]["type"] == "suspension", "nobody was there to see it expire"
    assert "turn_resumed" not in types(events)


async def test_h10_an_earlier_deadline_a_later_one_and_none_take_the_place_of_the_first(
    front: System, workers: Workers
) -> None:
    async with workers.one():
        earlier, later, never, answered = [await parked(front) for _ in range(4)]
        first = in_seconds(REPLACED_WITHIN_S)
        for conversation, call_id in (later, never, answered):
            await reschedule(conversation, call_id, first)
        await reschedule(*later, first + timedelta(seconds=1.5))
        await reschedule(*never, None)
        await answered[0].resolve(answered[1], "reject", reason="no")
        await reschedule_soon(*earlier, 0.5)
        assert lateness_s(await assert_expired_everywhere(*earlier)) < IDLE_S + SLACK_S
        events = await assert_expired_everywhere(*later)
        assert 0 <= lateness_s(events) < IDLE_S + SLACK_S
        assert datetime.fromisoformat(of_type(events, "suspension")[-1]["expires_at"]) > first
        assert types(await never[0].events())[-1] == "suspension", "it still waits"
        await never[0].resolve(never[1], "approve")
        assert of_type(await never[0].turn_ends(), "tool_result")[0]["status"] == "ok"
        assert of_type(await answered[0].turn_ends(), "tool_result")[0]["status"] == "rejected"


async def test_h9_a_deadline_is_kept_by_the_worker_that_runs_the_slow_sibling(front: System, workers: Workers) -> None:
    async with workers.one():
        conversation = await front.start("Both", approval_timeout_s=0.5)
        events = await conversation.until(lambda seen: "tool_result" in types(seen))
        await front.post(f"{conversation.path}/cancel", {}, status=202)
    assert 0 <= lateness_s(events) < IDLE_S + SLACK_S


async def test_h9_whose_worker_stands_still_expires_by_another(front: System, workers: Workers) -> None:
    async with workers.one() as sleeper:
        conversation, call_id = await parked(front)
        await workers.rest()
        sleeper.signal(signal.SIGSTOP)
        async with workers.one():
            await reschedule_soon(conversation, call_id, 0.5)
            events = await assert_expired_everywhere(conversation, call_id)
            sleeper.signal(signal.SIGCONT)
            await conversation.say("And now?", when_busy="enqueue")
            await conversation.suspends(3)
    assert 0 <= lateness_s(events) < IDLE_S + SLACK_S
