"""Tools that say in a file that they run: the processes that run them are killed."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from domain.tools import Tool, ToolContext, as_tool

LOOK_EVERY_S = 0.02


async def note(ctx: ToolContext, file: str) -> str:
    """Write down that it ran."""
    _note(ctx, file)
    return "noted"


async def wait_for_file(ctx: ToolContext, file: str, until: str) -> str:
    """Write down that it runs, and end when there is another file."""
    _note(ctx, file)
    while not Path(until).exists():  # noqa: ASYNC110 - whoever makes it is another process
        await asyncio.sleep(LOOK_EVERY_S)
    return "there it is"


def _note(ctx: ToolContext, file: str) -> None:
    line = json.dumps({"tool_call_id": ctx.tool_call_id, "pid": os.getpid()})
    with Path(file).open("a") as notes:
        notes.write(line + "\n")


tools: list[Tool] = [as_tool(each) for each in (note, wait_for_file)]
