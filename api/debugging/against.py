"""One log folded by two versions of the code, each in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from api.debugging import fold_log
from api.debugging.checkouts import HERE, NoCheckout, checkout
from api.debugging.comparison import compare
from domain.wire import dumps, summary_stream_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.debugging.comparison import Comparison, Json
    from api.debugging.history import History
    from domain.event_store import StoredEvent

SCRIPT = str(Path(fold_log.__file__).resolve())
MOST_BYTES = 64 * 1024 * 1024
"""Of a line: a state or a row."""


async def against(history: History, version: str) -> Comparison:
    """Fold a conversation's whole log by this version of the code and by another: a directory, or a revision.

    Each in a process of its own, side by side. Raises `NoCheckout` where the other one cannot, `ConversationNotFound`.
    """
    await history.last_seq()
    async with (
        checkout(version) as there,
        _folding("this code", HERE, history) as ours,
        _folding(version, there, history) as theirs,
    ):
        return await compare(version, ours.said, theirs.said)


class _Folding:
    """A process that folds the log, and what it prints."""

    def __init__(self, version: str, process: asyncio.subprocess.Process) -> None:
        self._version, self._process = version, process

    async def said(self) -> Json:
        """Return the next line; raises `NoCheckout` if there is none."""
        assert self._process.stdout is not None
        if line := await self._process.stdout.readline():
            said: Json = json.loads(line)
            return said
        assert self._process.stderr is not None
        wrong = (await self._process.stderr.read()).decode(errors="replace").strip().splitlines() or ["it was killed"]
        await self._process.wait()
        raise NoCheckout(f"{self._version} cannot fold the log: {wrong[-1]}")


@asynccontextmanager
async def _folding(version: str, directory: Path, history: History) -> AsyncIterator[_Folding]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-PW",
        "ignore",
        SCRIPT,
        str(directory),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        limit=MOST_BYTES,
    )
    feeding = asyncio.create_task(_feed(process, history), name="feeding a fold")
    try:
        yield _Folding(version, process)
        await feeding
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _feed(process: asyncio.subprocess.Process, history: History) -> None:
    """Write the log to the process, its own events and those of its summaries in the order of the log."""
    assert process.stdin is not None
    summaries = await history.log.read(summary_stream_of(history.conversation_id))
    with suppress(ConnectionError):  # it has ended, and says why
        async for page in history.pages():
            upto = page[-1].position
            lines = [event.stored for event in page] + [one for one in summaries if one.position <= upto]
            summaries = [one for one in summaries if one.position > upto]
            process.stdin.writelines(map(_line, sorted(lines, key=attrgetter("position"))))
            await process.stdin.drain()
        process.stdin.writelines(map(_line, summaries))
        await process.stdin.drain()
        process.stdin.close()


def _line(event: StoredEvent) -> bytes:
    return (
        dumps({name: str(value) if name == "event_id" else value for name, value in asdict(event).items()}).encode()
        + b"\n"
    )
