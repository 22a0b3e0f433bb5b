"""An event loop of its own in one daemon thread, for libraries that would stall the loop of everybody else."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from concurrent.futures import Executor, Future

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

CLOSE_TIMEOUT_S = 2.0
"""A thread in the middle of a long import is left behind: it is a daemon."""


class LoopThread:
    """Runs coroutines for callers on any loop; the thread starts with the first one.

    `at_end` runs over there as the last thing, when all else was cancelled.
    """

    def __init__(self, name: str, *, at_end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._name = name
        self._at_end = at_end
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Start a coroutine over there; cancelling the future cancels it. Raises `RuntimeError` once closed."""
        with self._lock:
            if self._closed:
                raise RuntimeError(f"the thread {self._name} is closed")
            if self._loop is None:
                self._loop = _TidyLoop()
                self._thread = threading.Thread(target=self._run, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work(), self._loop)

    async def close(self) -> None:
        """Cancel what runs, then end the thread; does nothing the second time."""
        with self._lock:
            loop, thread, was_closed, self._closed = self._loop, self._thread, self._closed, True
        if loop is None or thread is None or was_closed:
            return
        asyncio.run_coroutine_threadsafe(self._end(), loop)
        await asyncio.to_thread(thread.join, CLOSE_TIMEOUT_S)

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        try:
            await self._at_end()
        finally:
            asyncio.get_running_loop().stop()

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.get_loop().run_forever()


class _TidyLoop(asyncio.SelectorEventLoop):
    """A loop whose executor may make coroutines that are never awaited.

    LiteLLM makes each call's coroutine there; that of a caller who is cancelled meanwhile is left to the garbage
    collector, which would complain.
    """

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        def run() -> T:
            made = func(*args)
            return cast("T", _Dispensable(made)) if inspect.iscoroutine(made) else made

        return super().run_in_executor(executor, run)


class _Dispensable(Coroutine[Any, Any, Any]):
    """A coroutine that closes itself when it is dropped."""

    def __init__(self, made: Coroutine[Any, Any, Any]) -> None:
        self._made = made

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield from self._made.__await__())

    def send(self, value: Any) -> Any:
        return self._made.send(value)

    def throw(self, *raised: Any) -> Any:
        return self._made.throw(*raised)

    def close(self) -> None:
        self._made.close()

    def __del__(self) -> None:
        self._made.close()
