"""Workers are killed in the middle of a turn, and another one goes on from the log."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from tests.support.model_script import call, calls, gate, says
from tests.support.slack import SLACK_S
from tests.support.system import of_type, types
from tests.support.workers import front, workers

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer
    from tests.support.system import System
    from tests.support.workers import Workers

__all__ = ["front", "workers"]

TAKEN_OVER_S = 10.0
AT_ONCE_S = 2.0


async def test_t3_another_worker_goes_on_within_ten_seconds_after_one_was_killed_while_the_model_spoke(
    front: System, workers: Workers, model_server: ModelServer
) -> None:
    model_server.expect(says("Half a ", gate("never")), says("A whole reply"))
    async with workers.one() as first:
        conversation = await front.start("Hello")
        await model_server.requests(1)
        async with workers.one():
            killed = time.monotonic()
            await first.kill()
            await model_server.requests(2)
            took_s = model_server.received[1].arrived_at - killed
            events = await conversation.turn_ends()
    assert types(events)[2:] == ["turn_started", "turn_resumed", "assistant_msg", "turn_ended"]
    assert of_type(events, "assistant_msg")[0]["content"][0]["text"] == "A whole reply"
    assert [request.body["messages"] for request in model_server.received] == [
        [{"role": "user", "content": "Hello"}]
    ] * 2
    print(f"taken over {took_s:.2f} s after the death")
    assert took_s < TAKEN_OVER_S + SLACK_S


async def test_t4_a_call_runs_again_under_the_same_id_and_the_model_is_not_asked_to_choose_again(
    front: System, workers: Workers, model_server: ModelServer
) -> None:
    model_server.expect(says(calls(call("too_slow", {}, index=0), call("wait_for", {"gate": "x"}, index=1))))
    async with workers.one() as first:
        conversation = await front.start("Go")
        await conversation.until(lambda seen: "tool_result" in types(seen))
        await first.kill()
    await workers.expire_leases()
    async with workers.one():
        events = await conversation.until(lambda seen: "turn_resumed" in types(seen))
        assert types(events).count("tool_call") == 2
        assert len(model_server.received) == 1
        await front.post(f"{conversation.path}/cancel", {}, status=202)
        events = await conversation.turn_ends()
    results = of_type(events, "tool_result")
    assert {result["tool_call_id"] for result in results} == {
        wanted["tool_call_id"] for wanted in of_type(events, "tool_call")
    }
    assert len(results) == 2


async def test_t7_a_worker_that_is_told_to_stop_hands_back_at_once_and_the_next_one_needs_no_take_over(
    front: System, workers: Workers, model_server: ModelServer
) -> None:
    model_server.expect(says("Half a ", gate("never")), says("A whole reply"))
    async with workers.one() as first:
        conversation = await front.start("Hello")
        await model_server.requests(1)
        async with workers.one():
            first.signal(signal.SIGTERM)
            handed_back = await model_server.closed(0)
            await model_server.requests(2)
            took_s = model_server.received[1].arrived_at - handed_back
            events = await conversation.turn_ends()
            await first.gone()
    assert types(events)[2:] == ["turn_started", "assistant_msg", "turn_ended"]
    print(f"taken over {took_s:.3f} s after the hand-back")
    assert took_s < AT_ONCE_S + SLACK_S
