"""Tools for tests of the agent: what each run did can be read here, and slow ones are let go by the test."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from domain.tools import Tool, ToolContext, as_tool, tool
from tests.support.slack import PATIENCE_S

runs: list[dict[str, Any]] = []
"""What ran, in order: tool, tool_call_id, args, the user it ran as and their roles."""

gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
"""A `wait_for` waits until the gate of its name is set."""


def forget() -> None:
    """Start a test with nothing run and no gate open."""
    runs.clear()
    gates.clear()


async def ran(times: int) -> None:
    """Wait for so many runs: a call is in the log before its tool runs."""
    async with asyncio.timeout(PATIENCE_S):
        while len(runs) < times:  # noqa: ASYNC110 - a tool may run in a thread
            await asyncio.sleep(0.01)


def _ran(ctx: ToolContext, name: str, **args: Any) -> None:
    roles = sorted(ctx.scope.roles)
    runs.append({"tool": name, "id": ctx.tool_call_id, "args": args, "user": ctx.scope.user, "roles": roles})


async def add(ctx: ToolContext, a: int, b: int) -> int:
    """Add two numbers."""
    _ran(ctx, "add", a=a, b=b)
    return a + b


async def get_weather(ctx: ToolContext, city: str) -> str:
    """Get the weather in a city."""
    _ran(ctx, "get_weather", city=city)
    return "sunny, 24 degrees"


async def wait_for(ctx: ToolContext, gate: str) -> str:
    """Wait until a gate is open."""
    _ran(ctx, "wait_for", gate=gate)
    await gates[gate].wait()
    return f"{gate} is open"


@tool(timeout_s=0.2)
async def too_slow(ctx: ToolContext) -> str:
    """Never end."""
    _ran(ctx, "too_slow")
    await asyncio.Event().wait()
    return "never"


async def breaks(ctx: ToolContext) -> str:
    """Fail."""
    _ran(ctx, "breaks")
    raise KeyError("a secret of ours")


@tool(gate="always")
async def send_email(ctx: ToolContext, to: str, body: str) -> str:
    """Send an email."""
    _ran(ctx, "send_email", to=to, body=body)
    return f"sent to {to}"


@tool(executor="human")
def ask_user(question: str) -> str:  # type: ignore[empty-body]  # a person answers
    """Ask the person."""


@tool(executor="client", gate="always")
def locate() -> dict[str, float]:  # type: ignore[empty-body]  # the client answers
    """Find out where the person is."""


tools: list[Tool] = [
    as_tool(each) for each in (add, get_weather, wait_for, too_slow, breaks, send_email, ask_user, locate)
]
