"""Running what users bring along: functions that may block, hang, ignore their cancellation, or raise anything."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import logging
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

CLEANUP_S = 1.0
"""How long what was cancelled may clean up before it is left behind."""

_logger = logging.getLogger(__name__)
_left_behind: set[asyncio.Task[Any]] = set()


async def ended_within(limit_s: float, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T] | None:
    """Run a coroutine, and return the task that has ended, however it did; None: it was given up after `limit_s`.

    What is given up is cancelled, and may clean up for a moment; one that goes on is kept referenced until it ends.
    Cancelling this does the same.
    """
    task = asyncio.create_task(work, name=name)
    try:
        await asyncio.wait({task}, timeout=limit_s)
    except asyncio.CancelledError:
        await _stop(task)
        raise
    if task.done():
        return task
    await _stop(task)
    _logger.warning("%s timed out", name, extra={"action": "timed_out"})
    return None


async def called(function: Callable[[], Any], *, is_async: bool, name: str) -> Any:
    """Call a function and return its value: a coroutine function in the loop, any other in a thread of its own."""
    value = function() if is_async else await _in_own_thread(name, function)
    return await value if inspect.isawaitable(value) else value  # a plain function may return an awaitable too


async def _stop(task: asyncio.Task[Any]) -> None:
    task.cancel()
    _left_behind.add(task)
    task.add_done_callback(_left_behind.discard)
    await asyncio.wait({task}, timeout=CLEANUP_S)
    if not task.done():
        _logger.warning("%s ignores its cancellation", task.get_name(), extra={"action": "left_behind"})


async def _in_own_thread(name: str, work: Callable[[], Any]) -> Any:
    """Run blocking work in a daemon thread of its own, which ends with the process; cancelling leaves it behind.

    A pool would do neither: its threads are few, and joined at exit.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def settle(value: Any, exc: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((value, exc))

    def run() -> None:
        value, failure = None, None
        try:
            value = work()
        except BaseException as exc:
            failure = exc
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, value, failure)

    threading.Thread(target=contextvars.copy_context().run, args=(run,), name=name, daemon=True).start()
    value, failure = await ended
    if failure is not None:
        raise failure
    return value
