"""The driver's side of the zygote: victims are forked, watched, and killed at the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from tests.support.program import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.crash.matrix.composition import Part

READY_S = 240.0
CLAIMED = ("claimed", "compaction-claimed")


@dataclass(eq=False)
class Victim:
    """A forked process: what it noted so far, where its api listens, and how it ended."""

    kill_at: str | None
    notes: list[dict[str, Any]] = field(default_factory=list)
    pid: asyncio.Future[int] = field(default_factory=asyncio.Future)
    url: asyncio.Future[str] = field(default_factory=asyncio.Future)
    ended: asyncio.Future[int] = field(default_factory=asyncio.Future)

    @property
    def reached(self) -> list[str]:
        """The boundaries that it reached, in order."""
        return [note["at"] for note in self.notes if "at" in note]

    @property
    def boundaries(self) -> list[str]:
        """The boundaries where another run may be killed; nothing is gained at claims that find nothing."""
        idle = {note["at"].partition(":")[0] for note in self.notes for one in CLAIMED if note.get(one) == 0}
        found = [label for label in self.reached if label.partition(":")[0] not in idle]
        return found + [
            label.replace("before", "during") for label in found if "append#" in label and "before" in label
        ]

    @property
    def died_there(self) -> bool:
        """Whether it died at its boundary."""
        return self.kill_at is not None and self.reached[-1:] == [self.kill_at]

    async def serves(self) -> str:
        """Wait until it runs or has ended; return where its api listens, "" if it does not."""
        either: list[asyncio.Future[Any]] = [self.url, self.ended]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return self.url.result() if self.url.done() else ""

    async def ends(self) -> int:
        """Wait for its end and return its status; a minus and a number is the signal that killed it."""
        await asyncio.wait([self.ended])
        return self.ended.result()

    async def kill(self) -> None:
        """End it, if it has not ended, and wait until it is gone."""
        await asyncio.wait([self.pid])
        if not self.ended.done():
            with suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(self.pid.result(), signal.SIGKILL)
        await self.ends()

    def take(self, note: dict[str, Any]) -> None:
        """Take in a note of the process, or of the zygote about it."""
        match note:
            case {"pid": int(pid)}:
                self.pid.set_result(pid)
            case {"ended": int(status)}:
                self.ended.set_result(status)
            case _:
                self.notes.append(note)
                if "url" in note:
                    self.url.set_result(note["url"])


class Zygote:
    """A running zygote."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = count(1)
        self._victims: dict[int, Victim] = {}
        self.ready = asyncio.Event()

    def fork(self, part: Part, kill_at: str | None = None) -> Victim:
        """Fork a process, which lives until it is killed."""
        victim, number = Victim(kill_at), next(self._numbers)
        self._victims[number] = victim
        assert self._process.stdin is not None
        command = {"number": number, "part": asdict(part), "kill_at": kill_at}
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        return victim

    async def listen(self) -> None:
        """Take in notes until the zygote ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            note = json.loads(line)
            if number := note.pop("number", None):
                self._victims[number].take(note)
                if "ended" in note:
                    del self._victims[number]
            else:
                self.ready.set()


@asynccontextmanager
async def running_zygote() -> AsyncIterator[Zygote]:
    """Start a zygote; it and what it forked end with the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.crash.matrix.zygote"),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    zygote = Zygote(process)
    listening = asyncio.create_task(zygote.listen())
    try:
        async with asyncio.timeout(READY_S):
            await zygote.ready.wait()
        yield zygote
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        await listening
