"""Ending tasks for good: what is cancelled may need a moment, ignore it, or never have heard of it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

logger = logging.getLogger(__name__)

AGAIN_AFTER_S = 1.5
_left_behind: set[asyncio.Task[Any]] = set()


async def stop(tasks: Iterable[asyncio.Task[Any]], *, within_s: float = 2.0) -> None:
    """Cancel tasks and wait for their end; what they raise is dropped. One that goes on after that is left behind.

    They are cancelled again after a while: under Python 3.11 `asyncio.wait_for` (psycopg's pool waits by it) forgets a
    cancellation that meets the very thing that is waited for.
    """
    running = set(tasks)
    for task in running:
        task.add_done_callback(_dropped)
    clock = asyncio.get_running_loop().time
    until = clock() + within_s
    while running and (seconds := min(AGAIN_AFTER_S, until - clock())) > 0:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=seconds)
    for task in running:
        logger.warning("%s ignores its cancellation", task.get_name(), extra={"action": "task_left_behind"})
        _left_behind.add(task)


def _dropped(task: asyncio.Task[Any]) -> None:
    _left_behind.discard(task)
    if not task.cancelled():
        task.exception()  # else asyncio complains that nobody asked
