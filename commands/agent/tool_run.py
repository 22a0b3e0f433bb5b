"""One run of a server tool: whatever it does, the call gets one result that a model can act on."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import logging
import threading
from typing import TYPE_CHECKING, Any

from domain.decisions import Outcome
from domain.errors import InvalidInput
from domain.event_store import MAX_EVENT_BYTES
from domain.parts import Part, fitted, text_part
from domain.tool_context import MAX_RESOURCES_BYTES, ToolError
from domain.tool_values import NotStorable, as_json
from domain.wire import dumps

if TYPE_CHECKING:
    from collections.abc import Callable

    from domain.tool_context import ToolContext
    from domain.tools import Tool

DEFAULT_TIMEOUT_S = 60.0
MAX_RESULT_BYTES = MAX_EVENT_BYTES - 2 * MAX_RESOURCES_BYTES
"""A larger result is cut, with a stub that says so."""
_CLEANUP_S = 1.0
"""How long a cancelled tool may clean up before it is left behind."""

_logger = logging.getLogger(__name__)
_left_behind: set[asyncio.Task[Outcome]] = set()


async def run_tool(tool: Tool, args: Any, context: ToolContext, *, timeout_s: float | None = None) -> Outcome:
    """Run a server tool with the recorded arguments and return how it ended; the context is used up.

    The tool's own timeout wins over `timeout_s` (the conversation's), 60 s where neither is set; then a coroutine is
    cancelled, and the thread of a sync tool left behind, its value dropped. Cancelling this does the same and
    returns nothing. Raises only what the context's `record` raised (`Superseded`, a store that is down): then the
    call has no outcome here, whatever the tool made of the exception.
    """
    limit = tool.timeout_s or timeout_s or DEFAULT_TIMEOUT_S
    try:
        if tool.executor != "server":  # since the call was recorded
            return _error(context, f"{tool.name} is no tool that runs on this server any more: it did not run.")
        if tool.requires_user and context.by_system:
            return _error(context, f"{tool.name} needs a user, but the system is acting: it did not run.")
        try:
            values = tool.arguments.bind(args)
        except InvalidInput as exc:
            return _error(context, f"{tool.name} did not run: its arguments do not fit its schema: {exc}.")
        if not tool.rerun:
            if context.has_started():
                return _error(context, f"{tool.name} was interrupted; it may have taken effect, and is not run again.")
            await context.mark_started()
        outcome = await _within(limit, tool, asyncio.create_task(_run(tool, values, context)), context)
    finally:
        context.close()
    if context.record_failure is not None:
        raise context.record_failure
    return outcome


def missing_tool(tool_call_id: str, name: str) -> Outcome:
    """Return how a call ends whose tool this server does not have (any more)."""
    return Outcome(tool_call_id, "error", [text_part(f"There is no tool named {name} on this server: it did not run.")])


async def _within(limit_s: float, tool: Tool, task: asyncio.Task[Outcome], context: ToolContext) -> Outcome:
    try:
        await asyncio.wait({task}, timeout=limit_s)
    except asyncio.CancelledError:
        await _stop(task, tool)
        raise
    if not task.done():
        await _stop(task, tool)
        _logger.warning("tool %s timed out", tool.name, extra={"action": "tool_timed_out", "tool": tool.name})
        return _error(
            context, f"{tool.name} was not done after {limit_s:g} s and was given up; it may have taken effect."
        )
    failure = asyncio.CancelledError() if task.cancelled() else task.exception()
    return task.result() if failure is None else _failed(context, tool, failure)


async def _stop(task: asyncio.Task[Outcome], tool: Tool) -> None:
    """Cancel a tool and let it clean up for a moment; one that goes on is kept referenced until it ends."""
    task.cancel()
    _left_behind.add(task)
    task.add_done_callback(_left_behind.discard)
    await asyncio.wait({task}, timeout=_CLEANUP_S)
    if not task.done():
        _logger.warning("tool %s ignores its cancellation", tool.name, extra={"action": "tool_left_behind"})


async def _run(tool: Tool, values: dict[str, Any], context: ToolContext) -> Outcome:
    try:
        if tool.is_async:
            value = await tool.call(values, context)
        else:
            value = await _in_own_thread(tool.name, lambda: tool.call(values, context))
            if inspect.isawaitable(value):  # a plain function around a coroutine function
                value = await value
        content = fitted(_parts(value), MAX_RESULT_BYTES)
    except ToolError as exc:
        return _error(context, str(exc) or f"{tool.name} failed.")
    except NotStorable as exc:
        _logger.exception("tool %s made a value that cannot be kept", tool.name, extra={"action": "tool_failed"})
        return _error(context, f"{tool.name} ran, but made a value that {exc}.")
    except (Exception, SystemExit, KeyboardInterrupt) as exc:  # the last two would end the loop
        return _failed(context, tool, exc)
    return Outcome(context.tool_call_id, "ok", content, list(context.resources))


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

    threading.Thread(target=contextvars.copy_context().run, args=(run,), name=f"tool-{name}", daemon=True).start()
    value, failure = await ended
    if failure is not None:
        raise failure
    return value


def _parts(value: Any) -> list[Part]:
    """Return a tool's value as content: text as it is, parts as they are, anything else as JSON text."""
    if isinstance(value, str):
        return [text_part(value)]
    parts = [value] if isinstance(value, Part) else value
    if isinstance(parts, list | tuple) and parts and all(isinstance(part, Part) for part in parts):
        return list(parts)
    return [text_part(dumps(as_json(value, max_bytes=None)))]


def _failed(context: ToolContext, tool: Tool, exc: BaseException) -> Outcome:
    """Return the neutral result of an exception that was not meant for the model; the log has the traceback."""
    if exc is not context.record_failure:  # that one is raised to the caller
        _logger.error("tool %s failed", tool.name, exc_info=exc, extra={"action": "tool_failed", "tool": tool.name})
    return _error(context, f"{tool.name} failed ({type(exc).__name__}); it may have taken effect.")


def _error(context: ToolContext, text: str) -> Outcome:
    content = fitted([text_part(text)], MAX_RESULT_BYTES)
    return Outcome(context.tool_call_id, "error", content, list(context.resources))
