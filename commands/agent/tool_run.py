"""One run of a server tool: whatever it does, the call gets one result that a model can act on."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from commands.agent.user_run import called, ended_within
from domain.decisions import Outcome
from domain.errors import InvalidInput
from domain.event_store import MAX_EVENT_BYTES
from domain.parts import Part, fitted, text_part
from domain.tool_context import MAX_RESOURCES_BYTES, ToolError
from domain.tool_values import NotStorable, as_json
from domain.wire import dumps

if TYPE_CHECKING:
    from domain.tool_context import ToolContext
    from domain.tools import Tool

DEFAULT_TIMEOUT_S = 60.0
MAX_RESULT_BYTES = MAX_EVENT_BYTES - 2 * MAX_RESOURCES_BYTES
"""A larger result is cut, with a stub that says so."""

_logger = logging.getLogger(__name__)


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
        outcome = await _within(limit, tool, values, context)
    finally:
        context.close()
    if context.record_failure is not None:
        raise context.record_failure
    return outcome


def missing_tool(tool_call_id: str, name: str) -> Outcome:
    """Return how a call ends whose tool this server does not have (any more)."""
    return Outcome(tool_call_id, "error", [text_part(f"There is no tool named {name} on this server: it did not run.")])


async def _within(limit_s: float, tool: Tool, values: dict[str, Any], context: ToolContext) -> Outcome:
    task = await ended_within(limit_s, _run(tool, values, context), name=f"tool {tool.name}")
    if task is None:
        return _error(
            context, f"{tool.name} was not done after {limit_s:g} s and was given up; it may have taken effect."
        )
    failure = asyncio.CancelledError() if task.cancelled() else task.exception()
    return task.result() if failure is None else _failed(context, tool, failure)


async def _run(tool: Tool, values: dict[str, Any], context: ToolContext) -> Outcome:
    try:
        value = await called(lambda: tool.call(values, context), is_async=tool.is_async, name=f"tool-{tool.name}")
        content = fitted(_parts(value), MAX_RESULT_BYTES)
    except ToolError as exc:
        return _error(context, str(exc) or f"{tool.name} failed.")
    except NotStorable as exc:
        _logger.exception("tool %s made a value that cannot be kept", tool.name, extra={"action": "tool_failed"})
        return _error(context, f"{tool.name} ran, but made a value that {exc}.")
    except (Exception, SystemExit, KeyboardInterrupt) as exc:  # the last two would end the loop
        return _failed(context, tool, exc)
    return Outcome(context.tool_call_id, "ok", content, list(context.resources))


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
