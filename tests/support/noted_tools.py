"""Tools for processes that are watched from outside: they note their runs in a folder, and wait for files in it.

The folder is named by NOTED_TOOLS.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from domain.tools import ToolContext, tool

FOLDER = "NOTED_TOOLS"
RUNS = "runs"


def _ran(ctx: ToolContext, **args: str) -> Path:
    folder = Path(os.environ[FOLDER])
    with (folder / RUNS).open("a") as runs:
        runs.write(json.dumps({"id": ctx.tool_call_id, **args}) + "\n")
    return folder


async def look(ctx: ToolContext, city: str) -> str:
    """Look at a city."""
    _ran(ctx, city=city)
    return f"{city} is sunny"


async def wait_for(ctx: ToolContext, gate: str) -> str:
    """Wait until a gate is open: a file of that name."""
    folder = _ran(ctx, gate=gate)
    while not (folder / gate).exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.02)
    return f"{gate} is open"


@tool(gate="always")
async def send_email(ctx: ToolContext, to: str) -> str:
    """Send an email."""
    _ran(ctx, to=to)
    return f"sent to {to}"
