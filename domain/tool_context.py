"""What a tool gets to know about its call, and the checkpoints by which it survives a crash."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, cast, overload

from domain.text import clean
from domain.tool_values import as_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import TypeVar
    from uuid import UUID

    from domain.scope import Actor, Scope

    T = TypeVar("T")
    Record = Callable[[str, int, Any], Awaitable[None]]
    """Makes the n-th value of a step of that name durable before it returns, or raises."""

MAX_STEP_BYTES = 64 * 1024
MAX_STEPS_A_CALL = 1_000
MAX_RESOURCES_BYTES = 32 * 1024
STARTED = "started"
"""The step that marks the run of a tool with ``rerun=False``; authors cannot use the name."""

_NOTHING = object()


class ToolError(Exception):
    """What a tool raises for the model to read: its message becomes the call's error result, as it is."""


class ToolContext:
    """One tool call, as its tool sees it. It lives on the event loop that it was made on, for one run of the call.

    `tool_call_id` is globally unique and the same in every run: the idempotency key. `scope` is looked up for the
    run; where the system acts it has no roles and no real user (`by_system`), so a tool that reads `scope.user`
    says ``requires_user``. `metadata` is the conversation's and the message's.
    """

    def __init__(
        self,
        tool_call_id: str,
        conversation_id: UUID,
        scope: Scope,
        metadata: Mapping[str, Any],
        *,
        record: Record,
        recorded: Mapping[str, Sequence[Any]] | None = None,
        actor: Actor | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        """`recorded` holds the values of earlier runs by step name, ascending by n; `record` keeps a new one.

        `actor` is as whom the call runs, by default the scope's user.
        """
        self.tool_call_id, self.conversation_id, self.scope, self.metadata = (
            tool_call_id,
            conversation_id,
            scope,
            metadata,
        )
        self.by_system = (actor or scope.actor).kind == "system"
        self.logger = logger or logging.getLogger("rejoinder.tools")
        self.resources: list[dict[str, str]] = []
        self.record_failure: Exception | None = None
        self._recorded = {name: list(values) for name, values in (recorded or {}).items()}
        self._record = record
        self._taken: Counter[str] = Counter()
        self._turns: dict[str, asyncio.Lock] = {}
        self._turnstile = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._room = MAX_RESOURCES_BYTES

    @overload
    async def step(self, name: str, fn: Callable[[], Awaitable[T]]) -> T: ...
    @overload
    async def step(self, name: str, fn: Callable[[], T]) -> T: ...
    async def step(self, name: str, fn: Callable[[], Any]) -> Any:
        """Run `fn` (sync or async) once for all runs of this call, and return its value as JSON types.

        The value (JSON, at most 64 KiB) is durable before this returns; after a crash it is returned without
        running `fn` again. The same name again, as in a loop, is the next value: steps of one name run one after
        another, in the order of their calls. A step that raised was not recorded. Raises `NotStorable`.
        """
        async with self._turns.setdefault(_checked(name), asyncio.Lock()):
            if (past := self._past(name)) is not _NOTHING:
                return past
            value = fn()
            return await self._keep(name, await value if inspect.isawaitable(value) else value)

    def step_sync(self, name: str, fn: Callable[[], T]) -> T:
        """Do as `step`, from a tool that is no coroutine function (and so runs in a thread of its own)."""
        with self._turnstile:
            if (past := self._past(_checked(name))) is not _NOTHING:
                return cast("T", past)
            kept = self._keep(name, fn())
            return cast("T", asyncio.run_coroutine_threadsafe(kept, self._loop).result())

    def touched(self, path: str | os.PathLike[str], op: str) -> None:
        """Note that the call did `op` (``read``, ``write``, …) to a resource; kept with the result, and in summaries.

        What is beyond 32 KiB in all is left out.
        """
        resource = {"path": clean(os.fspath(path)), "op": clean(op)}
        if resource in self.resources:
            return
        self._room -= sum(len(text.encode()) + 16 for text in resource.values())
        if self._room >= 0:
            self.resources.append(resource)

    def has_started(self) -> bool:
        """Say whether an earlier run left the mark of `mark_started`."""
        return STARTED in self._recorded

    async def mark_started(self) -> None:
        """Leave a durable mark that the tool began to run."""
        await self._keep(STARTED, None)

    def close(self) -> None:
        """Let nothing be recorded any more: the run is over, and a thread that was left behind has no say."""
        self._closed = True

    def _past(self, name: str) -> Any:
        values, taken = self._recorded.get(name, []), self._taken[name]
        if taken >= len(values):
            return _NOTHING
        self._taken[name] += 1
        return values[taken]

    async def _keep(self, name: str, value: Any) -> Any:
        if self._closed:
            raise RuntimeError(f"step {name!r}: the run of this call is over")
        if sum(len(values) for values in self._recorded.values()) >= MAX_STEPS_A_CALL:
            raise ValueError(f"step {name!r}: a call may record {MAX_STEPS_A_CALL:,} values")
        kept = as_json(value, MAX_STEP_BYTES)
        try:
            await self._record(name, self._taken[name] + 1, kept)
        except Exception as exc:
            self.record_failure = exc
            raise
        self._recorded.setdefault(name, []).append(kept)
        self._taken[name] += 1
        return kept


def _checked(name: str) -> str:
    if not 1 <= len(name) <= 200 or name == STARTED or clean(name) != name:
        raise ValueError(f"a step's name has 1 to 200 storable characters and is not {STARTED!r}")
    return name
