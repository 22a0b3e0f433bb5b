"""How a runner runs the tools of a batch."""

from __future__ import annotations

import asyncio
import threading

from commands.agent.runner import TOOLS_AT_ONCE
from domain import events
from tests.support.agents import Office, assert_paid, count, says

BATCH = 50


async def test_t14_a_batch_of_slow_tools_runs_a_few_at_a_time_and_each_gets_its_turn() -> None:
    running, most, ran = 0, 0, 0
    lock, full, go_on = threading.Lock(), threading.Event(), threading.Event()

    def slow() -> str:
        """Wait for the test."""
        nonlocal running, most, ran
        with lock:
            running, ran = running + 1, ran + 1
            most = max(most, running)
            if running == TOOLS_AT_ONCE:
                full.set()
        go_on.wait(60)
        with lock:
            running -= 1
        return "at last"

    office = Office(tools=(slow,))
    office.model.script = [says("", *[("slow", {})] * BATCH)]
    one = await office.start("Go")
    task = asyncio.create_task((await office.runner(one)).run())
    try:
        assert await asyncio.to_thread(full.wait, 50)
    finally:
        go_on.set()
    await office.turns_end(one)
    await task

    assert (ran, most) == (BATCH, TOOLS_AT_ONCE)
    log = await office.log(one)
    assert_paid(log)
    assert count(log, events.ToolResult) == BATCH
    assert all(event.status == "ok" for event in log if isinstance(event, events.ToolResult))
