"""Workers are killed in the middle of a turn, and another one goes on from the log."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.model_script import call, calls, gate, says
from tests.support.process import serve
from tests.support.system import of_type, system_over, types

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from tests.support.model_server import ModelServer
    from tests.support.process import Served
    from tests.support.system import System


@pytest.fixture
async def front(database_url: str, model_server: ModelServer) -> AsyncIterator[System]:
    """The roles that are not killed."""
    async with system_over(database_url, model_server, ["api", "projector"]) as system:
        yield system


def a_worker(database_url: str, model_server: ModelServer) -> AbstractAsyncContextManager[Served]:
    """A worker in a process of its own."""
    return serve(
        *("--role", "worker"),
        database_url=database_url,
        model="openai/scripted",
        model_api_base=model_server.url,
        model_api_key="sk-scripted",
        tools="tests.support.agent_tools",
        log_level="ERROR",
    )


async def kill(worker: Served) -> None:
    """End a worker as a crash does."""
    os.kill(worker.process.pid, signal.SIGKILL)
    await worker.process.wait()


async def test_t3_a_turn_goes_on_after_its_worker_was_killed_while_the_model_spoke(
    database_url: str, model_server: ModelServer, front: System
) -> None:
    model_server.expect(says("Half a ", gate("never")), says("A whole reply"))
    async with a_worker(database_url, model_server) as first:
        conversation = await front.start("Hello")
        await model_server.requests(1, timeout_s=30)
        await kill(first)
    async with a_worker(database_url, model_server):
        events = await conversation.turn_ends()
    assert types(events)[2:] == ["turn_started", "turn_resumed", "assistant_msg", "turn_ended"]
    assert of_type(events, "assistant_msg")[0]["content"][0]["text"] == "A whole reply"
    assert [request.body["messages"] for request in model_server.received] == [
        [{"role": "user", "content": "Hello"}]
    ] * 2


async def test_t4_a_call_runs_again_under_the_same_id_and_the_model_is_not_asked_to_choose_again(
    database_url: str, model_server: ModelServer, front: System
) -> None:
    model_server.expect(says(calls(call("too_slow", {}, index=0), call("wait_for", {"gate": "x"}, index=1))))
    async with a_worker(database_url, model_server) as first:
        conversation = await front.start("Go")
        await conversation.until(lambda seen: "tool_result" in types(seen))
        await kill(first)
    async with a_worker(database_url, model_server):
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


async def test_t7_a_worker_that_is_told_to_stop_hands_back_and_the_next_one_needs_no_take_over(
    database_url: str, model_server: ModelServer, front: System
) -> None:
    model_server.expect(says("Half a ", gate("never")), says("A whole reply"))
    async with a_worker(database_url, model_server) as first:
        conversation = await front.start("Hello")
        await model_server.requests(1, timeout_s=30)
        first.process.send_signal(signal.SIGTERM)
        assert await first.process.wait() == 0
    async with a_worker(database_url, model_server):
        events = await conversation.turn_ends()
    assert types(events)[2:] == ["turn_started", "assistant_msg", "turn_ended"]
