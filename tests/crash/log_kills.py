"""Kills writers and the server of a log at random, then compares what was promised with the log."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections import Counter
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from tests.crash.log_writer import Note, opened, read_journal
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from domain.event_store import Batch, StoredEvent

SECONDS = float(os.environ.get("REJOINDER_CRASH_SECONDS", "5"))
"""How long a run kills."""
ROOT = Path(__file__).parents[2]


class Writers:
    """Processes that append, each with its journal; whoever is killed is followed by one that settles its appends."""

    def __init__(self, address: str, folder: Path) -> None:
        self.streams = f"conversation-{uuid4()}"
        self._address, self._folder = address, folder
        self._running: dict[Path, asyncio.subprocess.Process] = {}
        self._journals: list[Path] = []

    async def start(self, dead: Path | None = None) -> None:
        """Start one, which goes on where a dead one stopped."""
        journal = self._folder / f"journal-{len(self._journals)}"
        arguments = [self._address, self.streams, str(journal), *([str(dead)] if dead else [])]
        self._journals.append(journal)
        self._running[journal] = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.crash.log_writer", *arguments, cwd=ROOT
        )

    async def kill_one(self) -> None:
        """Kill one and start its successor."""
        dead = random.choice(list(self._running))
        await self._kill(self._running.pop(dead))
        await self.start(dead)

    async def end(self) -> list[list[Note]]:
        """Kill all and return the journals."""
        while self._running:
            await self._kill(self._running.popitem()[1])
        return [read_journal(journal) for journal in self._journals]

    async def _kill(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def writing(address: str, folder: Path, processes: int = 3) -> AsyncIterator[Writers]:
    """Run some writers; none is left at the end."""
    writers = Writers(address, folder)
    try:
        for _ in range(processes):
            await writers.start()
        yield writers
    finally:
        await writers.end()


async def kill_at_random(
    address: str, folder: Path, restart_server: Callable[[], None], seconds: float = SECONDS
) -> list[StoredEvent]:
    """Kill writers and server for so long, the server once at least; return the log if it keeps every promise."""
    kills: Counter[str] = Counter()
    async with writing(address, folder) as writers, opened(address, patience=20) as store:
        start = await store.head()
        async with aclosing(store.subscribe(start, prefixes=[writers.streams])) as batches:
            seen: list[StoredEvent] = []
            until = time.monotonic() + seconds
            while time.monotonic() < until or not kills["server"] or len(seen) < 1_000:
                await _follow(batches, seen, random.randint(50, 1_500))
                if random.random() < 0.5:
                    await writers.kill_one()
                    kills["writer"] += 1
                else:
                    restart_server()
                    kills["server"] += 1
            journals = await writers.end()
            log = await store.read_all(start, limit=10_000_000, prefixes=[writers.streams])
            await _follow(batches, seen, len(log) - len(seen))
    assert seen == log
    compared = check(log, journals)
    print(f"{len(log)} events; {dict(kills)} killed; {dict(compared)}")
    assert compared["acknowledged"] > 100
    return log


def check(log: list[StoredEvent], journals: list[list[Note]]) -> Counter[str]:
    """Fail if the log breaks a promise to any of the journals; count what was compared."""
    positions = [event.position for event in log]
    assert positions == sorted(set(positions)), "positions do not grow"
    versions: Counter[str] = Counter()
    places = {}
    for event in log:
        versions[event.stream] += 1
        assert event.seq == versions[event.stream], f"{event.stream} has a gap at {event.seq}"
        assert str(event.event_id) not in places, f"{event.event_id} is there twice"
        places[str(event.event_id)] = event
    notes = [note for journal in journals for note in journal]
    for note in notes:
        there = [places[one] for one in note.ids if one in places]
        assert len(there) in (0, len(note.ids)), f"torn: {note}"
        if note.kind == "acknowledged":
            assert [(one.stream, one.seq) for one in there] == [
                (note.stream, note.expected + n) for n in range(1, len(note.ids) + 1)
            ], f"acknowledged but not there: {note}"
            assert (there[-1].seq, there[-1].position) == (note.seq, note.position), f"another receipt: {note}"
        if note.kind == "moved":
            assert note.seq != note.expected, f"refused without reason: {note}"
            assert note.seq < note.expected or not there, f"refused but there: {note}"
    assert {one for note in notes for one in note.ids} >= set(places), "nobody intended this"
    return Counter(note.kind for note in notes)


async def _follow(batches: AsyncGenerator[Batch, None], seen: list[StoredEvent], count: int) -> None:
    """Wait until `count` more events were delivered."""
    wanted = len(seen) + count
    async with asyncio.timeout(PATIENCE_S):
        while len(seen) < wanted:
            seen += (await anext(batches)).events
