"""The event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from infra import loop_thread
from infra.loop_thread import LoopThread


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no thread behind that is only slow."""
    monkeypatch.setattr(loop_thread, "CLOSE_TIMEOUT_S", 120)


async def _nothing() -> None:
    pass


async def test_work_runs_over_there_and_its_result_comes_back() -> None:
    thread = LoopThread("over-there", at_end=_nothing)

    async def work() -> str:
        return threading.current_thread().name

    assert await asyncio.wrap_future(thread.submit(work)) == "over-there"
    await thread.close()


async def test_closing_cancels_what_runs_and_then_does_the_last_thing() -> None:
    happened: list[str] = []
    begun = threading.Event()

    async def forever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            happened.append("cancelled")

    async def at_end() -> None:
        happened.append("ended")

    thread = LoopThread("over-there", at_end=at_end)
    running = thread.submit(forever)
    await asyncio.to_thread(begun.wait)
    await thread.close()
    await thread.close()

    assert happened == ["cancelled", "ended"]
    assert running.cancelled()
    with pytest.raises(RuntimeError, match="closed"):
        thread.submit(_nothing)


async def test_a_coroutine_made_in_the_executor_for_somebody_who_left_is_closed() -> None:
    thread = LoopThread("over-there", at_end=_nothing)
    working, let_go = threading.Event(), threading.Event()

    def make() -> object:
        working.set()
        let_go.wait()
        return _nothing()

    async def work() -> object:
        return await asyncio.get_running_loop().run_in_executor(None, make)

    caller = thread.submit(work)
    await asyncio.to_thread(working.wait)
    caller.cancel()
    await asyncio.wrap_future(thread.submit(_nothing))  # the cancellation has arrived
    let_go.set()
    await thread.close()

    gc.collect()  # a coroutine that was never awaited would fail the test here
