"""Workers that are killed in the middle of a batch of tool calls: what is there is not done again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.support.long_form import LONG
from tests.support.model_script import call, calls, gate, says
from tests.support.slack import PATIENCE_S
from tests.support.system import of_type, types
from tests.support.workers import assert_paid_once, front, runs_noted, workers

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_server import ModelServer
    from tests.support.system import System
    from tests.support.workers import Workers

__all__ = ["front", "workers"]

DEATHS = 10 if LONG else 6
"""More than the attempts that a turn has."""
EMAIL = {"to": "ada@example.org", "body": "hi"}


async def test_t5_killed_after_the_last_result_of_a_batch_the_next_thing_is_the_model_call(
    front: System, workers: Workers, model_server: ModelServer, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    both = calls(call("note", {"file": str(ran)}, index=0), call("note", {"file": str(ran)}, index=1))
    model_server.expect(says(both), says("Half a ", gate("never")), says("Done"))
    async with workers.one() as first:
        conversation = await front.start("Go")
        await model_server.requests(2)
        assert types(await conversation.events())[-2:] == ["tool_result", "tool_result"]
        await first.kill()
    await workers.expire_leases()
    async with workers.one():
        events = await conversation.turn_ends()
    assert types(events)[-4:] == ["tool_result", "turn_resumed", "assistant_msg", "turn_ended"]
    assert len(runs_noted(ran)) == 2, "no tool ran again"
    assert len(model_server.received) == 3
    assert model_server.received[1].body["messages"] == model_server.received[2].body["messages"]
    assert_paid_once(events)


async def test_t6_killed_in_a_mixed_batch_the_model_is_called_when_both_calls_have_their_results(
    front: System, workers: Workers, model_server: ModelServer, tmp_path: Path
) -> None:
    ran, go = tmp_path / "ran", tmp_path / "go"
    slow = call("wait_for_file", {"file": str(ran), "until": str(go)}, index=0)
    model_server.expect(says(calls(slow, call("send_email", EMAIL, index=1))), says("Done"))
    async with workers.one() as first:
        conversation = await front.start("Go")
        events = await conversation.suspends()
        await _ran(ran, 1)
        await first.kill()
    await workers.expire_leases()
    email = of_type(events, "suspension")[0]["tool_call_id"]
    async with workers.one():
        await _ran(ran, 2)
        await conversation.resolve(email, "approve")
        events = await conversation.until(lambda seen: "tool_result" in types(seen))
        assert of_type(events, "tool_result")[0]["tool_call_id"] == email
        assert len(model_server.received) == 1, "a call has no result yet"
        go.touch()
        events = await conversation.turn_ends()
    assert len({one["tool_call_id"] for one in runs_noted(ran)}) == 1, "the same call under the same id"
    assert len({one["pid"] for one in runs_noted(ran)}) == 2
    assert len(model_server.received) == 2
    assert [one["role"] for one in model_server.received[1].body["messages"]] == ["user", "assistant", "tool", "tool"]
    assert_paid_once(events)


async def test_t6_a_mixed_batch_whose_answer_comes_while_everybody_is_dead_goes_on_from_it(
    front: System, workers: Workers, model_server: ModelServer, tmp_path: Path
) -> None:
    ran, go = tmp_path / "ran", tmp_path / "go"
    slow = call("wait_for_file", {"file": str(ran), "until": str(go)}, index=0)
    model_server.expect(says(calls(slow, call("send_email", EMAIL, index=1))), says("Done"))
    async with workers.one() as first:
        conversation = await front.start("Go")
        events = await conversation.suspends()
        await _ran(ran, 1)
        await first.kill()
    await conversation.resolve(of_type(events, "suspension")[0]["tool_call_id"], "reject", reason="no")
    go.touch()
    await workers.expire_leases()
    async with workers.one():
        events = await conversation.turn_ends()
    assert sorted(one["status"] for one in of_type(events, "tool_result")) == ["ok", "rejected"]
    assert len(model_server.received) == 2
    assert_paid_once(events)


async def _ran(file: Path, times: int) -> None:
    """Wait until tools have noted so often that they run."""
    async with asyncio.timeout(PATIENCE_S):
        while len(runs_noted(file)) < times:  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.02)


async def test_t8_a_turn_whose_workers_die_five_times_without_progress_fails_and_the_next_message_works(
    front: System, workers: Workers, model_server: ModelServer
) -> None:
    model_server.expect(*[says("Half a ", gate("never"))] * 5)
    conversation = await front.start("Hello")
    for attempt in range(1, 6):
        async with workers.one() as worker:
            await model_server.requests(attempt)
            await worker.kill()
        await workers.expire_leases()
    async with workers.one():
        events = await conversation.turn_ends()
        assert [(one["outcome"], one["reason"]) for one in of_type(events, "turn_ended")] == [
            ("failed", "max_attempts")
        ]
        assert types(events).count("turn_resumed") == len(model_server.received) == 5
        await conversation.say("Hello again")
        events = await conversation.turn_ends(2)
    assert of_type(events, "turn_ended")[1]["outcome"] == "completed"
    assert_paid_once(events)


async def test_t8_a_turn_whose_workers_die_again_and_again_with_progress_between_is_finished(
    front: System, workers: Workers, model_server: ModelServer, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    model_server.expect(says(calls(call("note", {"file": str(ran)}))))
    conversation = await front.start("Go")
    for death in range(DEATHS):
        model_server.expect(says("Half a ", gate("never")))
        async with workers.one() as worker:
            await model_server.requests(2 * death + 2)
            await worker.kill()
        model_server.expect(says(calls(call("note", {"file": str(ran)}))))
        await workers.expire_leases()
    async with workers.one():
        events = await conversation.turn_ends()
    assert types(events).count("turn_resumed") == DEATHS
    assert len(runs_noted(ran)) == DEATHS + 1
    assert of_type(events, "turn_ended")[0]["outcome"] == "completed"
    assert_paid_once(events)
