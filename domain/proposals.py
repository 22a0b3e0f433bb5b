"""From the calls that a model wants to the calls that are recorded: checked against the tools, under ids of ours."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from domain.decisions import Inquiry, ProposedCall
from domain.errors import InvalidInput
from domain.text import clean, truncated
from domain.tool_values import MAX_VALUE_BYTES, NotStorable, as_json
from domain.wire import dumps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from domain.tools import Tool, Toolset

_PROMPT_BYTES = 4 * 1024
_QUESTION_BYTES = 32 * 1024
_UNREADABLE_BYTES = 16 * 1024


class RequestedCall(Protocol):
    """A call as the model asked for it; `arguments` is the raw text that it produced, perhaps no JSON."""

    @property
    def provider_id(self) -> str | None:
        """The provider's id, perhaps missing, repeated or the same in every turn."""

    @property
    def name(self) -> str:
        """The tool's name."""

    @property
    def arguments(self) -> str:
        """The arguments as text; an empty one means none."""

    @property
    def provider_data(self) -> dict[str, Any] | None:
        """What is opaque of the call, for its provider."""


def mint_tool_call_id() -> str:
    """Return a new globally unique id of a tool call."""
    return f"call_{uuid4().hex}"


def propose(
    requests: Iterable[RequestedCall],
    toolset: Toolset,
    mint_id: Callable[[], str] = mint_tool_call_id,
    *,
    approval_timeout_s: float | None,
) -> tuple[ProposedCall, ...]:
    """Check a reply's calls against the tools that the conversation has, in order.

    What cannot run (unknown tool, arguments that are no JSON or do not fit) carries an `error` for the model to act
    on. A call that waits for somebody carries its inquiry, with the tool's own deadline, else `approval_timeout_s`
    (None or 0: none).
    """
    return tuple(
        replace(_proposed(request, toolset, mint_id(), approval_timeout_s), provider_data=request.provider_data)
        for request in requests
    )


def client_inquiry(tool: Tool, args: Mapping[str, Any], *, approval_timeout_s: float | None) -> Inquiry:
    """Return what a client is asked once the run of its tool (ungated, or approved with these args) is due."""
    prompt = f"The client is to run {_rendered(tool.name, args)}"
    return Inquiry("client", prompt, tool.response_schema, _deadline(tool, approval_timeout_s))


def _proposed(
    request: RequestedCall, toolset: Toolset, tool_call_id: str, approval_timeout_s: float | None
) -> ProposedCall:
    name = _sendable(request.name)
    tool = toolset.get(request.name)
    try:
        args = _parsed(request.arguments)
    except NotStorable as exc:
        args = truncated(clean(request.arguments), _UNREADABLE_BYTES)
        error = f"The arguments of {name} cannot be used: the text {exc}. Call it again with a JSON object."
        executor = tool.executor if tool else "server"
        return ProposedCall(tool_call_id, request.provider_id, name, args, executor, error=error)
    if tool is None:
        error = f"There is no tool named {name}. The tools are: {', '.join(toolset.names) or 'none'}."
        return ProposedCall(tool_call_id, request.provider_id, name, args, "server", error=error)
    try:
        args = tool.arguments.coerce(args)
    except InvalidInput as exc:
        error = f"The arguments of {name} do not fit its schema: {exc}. Correct them and call it again."
        return ProposedCall(tool_call_id, request.provider_id, name, args, tool.executor, error=error)
    gated = tool.gated_for(args)
    inquiry = _inquiry(tool, args, gated, approval_timeout_s)
    return ProposedCall(tool_call_id, request.provider_id, name, args, tool.executor, gated, inquiry)


def _inquiry(tool: Tool, args: dict[str, Any], gated: bool, approval_timeout_s: float | None) -> Inquiry | None:
    if gated:
        prompt = f"The agent wants to run {_rendered(tool.name, args)}"
        return Inquiry("approval", prompt, timeout_s=_deadline(tool, approval_timeout_s))
    match tool.executor:
        case "human":
            timeout_s = _deadline(tool, approval_timeout_s)
            return Inquiry("elicitation", _question(tool, args), tool.response_schema, timeout_s)
        case "client":
            return client_inquiry(tool, args, approval_timeout_s=approval_timeout_s)
        case _:
            return None


def _parsed(arguments: str) -> Any:
    if not arguments.strip():
        return {}
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError) as exc:
        where = f" (at character {exc.pos})" if isinstance(exc, json.JSONDecodeError) else ""
        raise NotStorable(f"is no valid JSON{where}") from exc
    return as_json(parsed, MAX_VALUE_BYTES)


def _sendable(name: str) -> str:
    """Return a name that providers take back in later requests; a model may have made up anything."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "_"


def _deadline(tool: Tool, approval_timeout_s: float | None) -> float | None:
    return approval_timeout_s if tool.approval_timeout_s is None else tool.approval_timeout_s


def _question(tool: Tool, args: dict[str, Any]) -> str:
    """Return the question that the model worded: an argument of that name, or the only one; else all of them."""
    asked = args.get("question", args.get("prompt", next(iter(args.values())) if len(args) == 1 else None))
    if isinstance(asked, str) and asked.strip():
        return truncated(asked, _QUESTION_BYTES)
    first_line = tool.description.partition("\n")[0]
    return f"{first_line}\n{_rendered(tool.name, args)}".strip()


def _rendered(name: str, args: Mapping[str, Any]) -> str:
    shown = ", ".join(f"{key}={dumps(value)}" for key, value in args.items())
    return truncated(f"{name}({shown})", _PROMPT_BYTES)
