"""The tools of the matrix: one of each kind that a crash could treat differently."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from domain.tools import Tool, ToolContext, as_tool, tool

if TYPE_CHECKING:
    from tests.crash.matrix.boundaries import Note


def make_tools(note: Note) -> list[Tool]:
    """Make them; they note their effects beside those that the wrapper around each notes."""

    async def look(ctx: ToolContext, city: str) -> str:
        """Look at a city."""
        return f"{city} is sunny"

    @tool(gate="always")
    async def send(ctx: ToolContext, to: str) -> str:
        """Send something."""
        return f"sent to {to}"

    @tool(executor="human")
    def ask(question: str) -> str:  # type: ignore[empty-body]  # a person answers
        """Ask the person."""

    @tool(executor="client")
    def locate() -> str:  # type: ignore[empty-body]  # the client answers
        """Find out where the person is."""

    @tool(executor="client", gate="always")
    def locate_exactly(metres: int) -> str:  # type: ignore[empty-body]  # the client answers
        """Find out where the person is, if they agree."""

    async def report(ctx: ToolContext, topic: str) -> str:
        """Write a report in steps, two of which have the same name."""

        async def made(what: str) -> str:
            note(effect=f"step {what}", id=ctx.tool_call_id)
            return what

        outline = await ctx.step("outline", lambda: made("outline 1"))
        chapters = [await ctx.step("chapter", lambda n=n: made(f"chapter {n}")) for n in (1, 2)]  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        return f"{topic}: {outline}, {', '.join(chapters)}"

    @tool(rerun=False)
    async def charge(ctx: ToolContext, amount: int) -> str:
        """Charge an amount, at most once."""
        return f"charged {amount}"

    async def wait(ctx: ToolContext) -> str:
        """Take longer than anybody waits."""
        await asyncio.Event().wait()
        return "never"

    return [as_tool(made) for made in (look, send, ask, locate, locate_exactly, report, charge, wait)]
