"""Ending tasks for good."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from commands.agent import stopping
from commands.agent.stopping import stop

if TYPE_CHECKING:
    import pytest


async def forgetful(times: int, still: asyncio.Event) -> None:
    """Lose so many cancellations, as `asyncio.wait_for` of Python 3.11 may."""
    for _ in range(times + 1):
        try:
            await still.wait()
        except asyncio.CancelledError:
            if times == 0:
                raise
            times -= 1


async def test_a_task_that_lost_its_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "AGAIN_AFTER_S", 0.01)
    task = asyncio.create_task(forgetful(1, asyncio.Event()))
    await asyncio.sleep(0)
    await stop([task], within_s=60)
    assert task.cancelled()


async def test_a_task_that_does_not_end_is_left_behind_and_said_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stopping, "AGAIN_AFTER_S", 0.01)
    still = asyncio.Event()
    task = asyncio.create_task(forgetful(100, still), name="the stubborn one")
    await asyncio.sleep(0)
    await stop([task], within_s=0.03)
    assert not task.done()
    assert "the stubborn one ignores its cancellation" in caplog.text
    still.set()
    await task


async def test_what_stopped_tasks_raise_is_dropped() -> None:
    async def breaks() -> None:
        raise ValueError("nobody asks")

    async def breaks_when_stopped() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("nobody asks")

    tasks = [asyncio.create_task(breaks()), asyncio.create_task(breaks_when_stopped())]
    await asyncio.sleep(0)
    await stop(tasks)
    assert all(task.done() for task in tasks)
    await stop([])
