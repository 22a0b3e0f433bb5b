"""Kill writers and the database server of the PostgreSQL log at random, then compare what was promised with the log.

``REJOINDER_CRASH_SECONDS`` (default 5) sets how long.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infra.embedded_postgres import EmbeddedPostgres
from infra.migrations import migrate
from infra.postgres_cluster import locate_cluster
from infra.postgres_event_store import PostgresEventStore
from tests.crash.log_writer import Note, read_journal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from domain.event_store import Batch, StoredEvent

SECONDS = float(os.environ.get("REJOINDER_CRASH_SECONDS", "5"))
ROOT = Path(__file__).parents[2]


async def start_writer(dsn: str, journal: Path, dead: Path | None = None) -> asyncio.subprocess.Process:
    arguments = [dsn, str(journal)] + ([str(dead)] if dead else [])
    return await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.crash.log_writer", *arguments, cwd=ROOT)


async def kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


async def follow(batches: AsyncGenerator[Batch, None], seen: list[StoredEvent], count: int) -> None:
    """Wait until `count` more events were delivered."""
    wanted = len(seen) + count
    async with asyncio.timeout(30):
        while len(seen) < wanted:
            seen += (await anext(batches)).events


def check(log: list[StoredEvent], journals: list[list[Note]]) -> Counter[str]:
    """Fail if the log breaks a promise to any of the journals; count what was compared."""
    assert [event.position for event in log] == list(range(1, len(log) + 1)), "positions have gaps"
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


@pytest.fixture
def home() -> Iterator[Path]:
    """A data directory that is not in tmp_path, where root's server cannot go."""
    directory = Path(tempfile.mkdtemp(prefix="rejoinder-kills-"))
    directory.chmod(0o711)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.timeout(60 + 3 * SECONDS)
async def test_l8_every_acknowledged_append_survives_kills_of_server_and_writers(home: Path, tmp_path: Path) -> None:
    server = EmbeddedPostgres(home)
    dsn = server.start()
    journals = [tmp_path / f"journal-{n}" for n in range(3)]
    writers = {}
    kills: Counter[str] = Counter()
    try:
        await migrate(dsn)
        for journal in journals:
            writers[journal] = await start_writer(dsn, journal)
        async with PostgresEventStore(dsn, patience=10) as store, aclosing(store.subscribe(0)) as batches:
            seen: list[StoredEvent] = []
            until = time.monotonic() + SECONDS
            while time.monotonic() < until or not kills["server"]:
                await follow(batches, seen, random.randint(50, 1_500))
                if random.random() < 0.5:
                    dead, writer = random.choice(list(writers.items()))
                    await kill(writer)
                    del writers[dead]
                    journals.append(tmp_path / f"journal-{len(journals)}")
                    writers[journals[-1]] = await start_writer(dsn, journals[-1], dead)
                    kills["writer"] += 1
                else:
                    pid = int((locate_cluster(home).data / "postmaster.pid").read_text().split()[0])
                    os.kill(pid, signal.SIGKILL)
                    server.start()
                    kills["server"] += 1
            for writer in writers.values():
                await kill(writer)
            writers.clear()
            head = await store.head()
            await follow(batches, seen, head - len(seen))
            log = await store.read_all(0, limit=head + 1)
    finally:
        for writer in writers.values():
            await kill(writer)
        server.stop()
    assert seen == log
    compared = check(log, [read_journal(journal) for journal in journals])
    print(f"{len(log)} events; {dict(kills)} killed; {dict(compared)}")
    assert compared["acknowledged"] > 100
