"""Rejoinder as a process of its own, as a user starts it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[2]
START_S = 60


@dataclass(frozen=True)
class Served:
    """A running ``rejoinder serve``: its process, its URL ("" without the api) and how long it took to be ready."""

    process: asyncio.subprocess.Process
    url: str
    ready_s: float


@asynccontextmanager
async def serve(*options: str, **settings: str) -> AsyncIterator[Served]:
    """Run ``rejoinder serve`` with these options and REJOINDER_ settings until the block ends, or it is killed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REJOINDER_")}
    environment |= {f"REJOINDER_{name.upper()}": value for name, value in settings.items()}
    started = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "api", "serve", *options),
        cwd=ROOT,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(START_S):
            url = await _ready(process)
        yield Served(process, url, time.monotonic() - started)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(15):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def _ready(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async for line in process.stdout:
        text = line.decode().strip()
        if text.startswith("listening on "):
            return text.removeprefix("listening on ")
        if text == "ready":
            return ""
    raise AssertionError(f"serve ended with {await process.wait()}")
