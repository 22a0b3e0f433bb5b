"""A process that appends to a few hot streams, with conflicts and repeats, and keeps a journal of what it was told.

``python -m tests.crash.log_writer ADDRESS STREAMS JOURNAL [JOURNAL_OF_A_DEAD_PROCESS]`` runs until it is killed. The
address is EventStoreDB's or PostgreSQL's, the streams are named by what their names begin with. A line of the journal
is a `Note` as JSON, written before an append ("intended") and after it ("acknowledged", "moved").
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple
from uuid import UUID, uuid4

from domain.event_store import Appended, NewEvent, StoreError, StreamMoved
from infra.eventstoredb import EventStoreDBEventStore
from infra.postgres_event_store import PostgresEventStore

STREAMS = 24
WRITERS = 16

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from domain.event_store import EventStore


class Note(NamedTuple):
    """What a writer knows of one append: `seq` and `position` of its receipt, or for "moved" the actual seq."""

    kind: Literal["intended", "acknowledged", "moved"]
    stream: str
    expected: int
    ids: tuple[str, ...]
    seq: int = 0
    position: int = 0


def read_journal(path: Path) -> list[Note]:
    """Read the notes of a process; its last line may be torn."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [
        Note(kind, stream, expected, tuple(ids), *told) for kind, stream, expected, ids, *told in map(json.loads, lines)
    ]


class Writer:
    """Appends and notes; `heads` is what it believes of the streams' versions."""

    def __init__(self, store: EventStore, streams: str, journal: Path) -> None:
        self._store = store
        self._journal = os.open(journal, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self._notes: list[Note] = []
        self._heads = {f"{streams}-{n}": 0 for n in range(STREAMS)}

    async def append(self, stream: str, expected: int, ids: tuple[str, ...]) -> Appended | None:
        """Append events of these ids; None if the store refused or could not be reached for long."""
        self._note(Note("intended", stream, expected, ids))
        events = [NewEvent(UUID(one), "user_msg", f'{{"id":"{one}"}}', "{}") for one in ids]
        try:
            receipt = await self._store.append(stream, events, expected)
        except StreamMoved as moved:
            self._note(Note("moved", stream, expected, ids, moved.actual))
            self._heads[stream] = moved.actual
            return None
        except StoreError:
            return None
        self._note(Note("acknowledged", stream, expected, ids, *receipt))
        self._heads[stream] = max(self._heads[stream], receipt.seq)
        return receipt

    async def write_for_ever(self) -> None:
        """Append, sometimes with a wrong expectation, twice at once, pipelined, or again what succeeded long ago."""
        while True:
            dice, stream = random.random(), random.choice(list(self._heads))
            ids = tuple(str(uuid4()) for _ in range(random.choice((1, 1, 1, 2, 3))))
            expected = max(0, self._heads[stream] + (random.choice((-2, -1, 1)) if random.random() < 0.1 else 0))
            if dice < 0.06 and self._notes:
                known = random.choice(self._notes[-2_000:])
                await self.append(known.stream, known.expected, known.ids)
            elif dice < 0.2:
                await asyncio.gather(self.append(stream, expected, ids), self.append(stream, expected, ids))
            elif dice < 0.3:
                follower = (str(uuid4()),)
                await asyncio.gather(
                    self.append(stream, expected, ids), self.append(stream, expected + len(ids), follower)
                )
            else:
                await self.append(stream, expected, ids)

    def _note(self, note: Note) -> None:
        os.write(self._journal, json.dumps(note).encode() + b"\n")
        if note.kind == "acknowledged":
            self._notes.append(note)


def opened(address: str, patience: float) -> AbstractAsyncContextManager[EventStore]:
    """Return the store at an address, to be entered."""
    if address.startswith("esdb"):
        return EventStoreDBEventStore(address, patience=patience)
    return PostgresEventStore(address, patience=patience)


async def main(address: str, streams: str, journal: Path, dead: Path | None) -> None:
    """Settle what a dead process left unknown, as a restarted process would, then write for ever."""
    async with opened(address, patience=60) as store:
        writer = Writer(store, streams, journal)
        if dead is not None:
            left = read_journal(dead)
            known = {note.ids for note in left if note.kind != "intended"}
            for note in left:
                if note.ids not in known:
                    await writer.append(note.stream, note.expected, note.ids)
        await asyncio.gather(*(writer.write_for_ever() for _ in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]) if len(sys.argv) > 4 else None))
