"""The double as a process of its own, started, killed and started again on the same port with the same log."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Self

from tests.support.eventstoredb.control import Control

ROOT = Path(__file__).parents[3]
START_S = 60


class DoubleProcess:
    """``python -m tests.support.eventstoredb`` over a file; `uri` stays the same from the first start on."""

    def __init__(self, data: Path) -> None:
        self.uri, self.control = "", Control("")
        self._data, self._port = data, 0
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def start(self) -> None:
        """Start it and wait until it listens."""
        arguments = ["--port", str(self._port), "--data", str(self._data)]
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.eventstoredb", *arguments),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(START_S):
            line = (await self._process.stdout.readline()).decode().split()
        assert line, "the double did not start"
        self.uri, self.control = line[1], Control(line[-1])
        self._port = int(self.uri.removeprefix("esdb://127.0.0.1:").partition("?")[0])

    async def kill(self) -> None:
        """Kill it with SIGKILL, if it runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
