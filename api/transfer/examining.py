"""A file of logs compared with a store, before anything is written: what is missing there, and what doesn't fit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from api.transfer.judging import Judge, new_event
from api.transfer.open_work import OpenWork
from api.transfer.reader import ExportError, read_lines
from commands.chunks import CHUNK_EVENTS
from domain.event_store import StreamDeleted, StreamMoved
from domain.wire import stream_of, summary_stream_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path
    from uuid import UUID

    from api.transfer.reader import Line
    from domain.event_store import EventStore
    from projections.event import Event

PAGE_CHARACTERS = 4 * 1024 * 1024
NOWHERE = 10**9
"""No stream has so many events: an append there is refused, and says by how whether the stream was deleted."""


@dataclass(slots=True)
class Arrival:
    """A conversation of the file: how many events of each stream the store has and lacks, and what it would owe."""

    conversation_id: UUID
    there: dict[str, int] = field(default_factory=dict)
    missing: int = 0
    open_work: list[str] = field(default_factory=list)


async def examine(path: Path, store: EventStore, progress: Callable[[int], None]) -> list[Arrival]:
    """Read the whole file and say what of it is missing; `progress` is told the events done. Writes nothing.

    Raises `ExportError` for a line that doesn't fit: see there, and an event with which its log is not sound, another
    event in the store at its place, a conversation that was erased or has gone on in another way; `OSError`.
    """
    arrivals: list[Arrival] = []
    done = 0
    for conversation_id, lines in groupby(read_lines(path), lambda line: line.conversation_id):
        examined = _Examination(store, conversation_id)
        for page in pages(lines):
            await examined.take(page)
            done += len(page)
            progress(done)
            await asyncio.sleep(0)  # where nothing is there to compare with nothing else waits
        arrivals.append(await examined.finish())
    return arrivals


class _Examination:
    """One conversation of the file, compared with what the store has of it."""

    def __init__(self, store: EventStore, conversation_id: UUID) -> None:
        self._store = store
        self._judge = Judge(conversation_id)
        self._work = OpenWork(self._judge.conversation)
        self._in_file: dict[str, int] = {stream_of(conversation_id): 0}
        self._last_line = 0
        self._arrival = Arrival(conversation_id)

    async def take(self, lines: Sequence[Line]) -> None:
        """Check the next lines: that their log is sound, and that they are what the store has at their places."""
        self._work.fold([self._judged(line) for line in lines])
        self._last_line = lines[-1].number
        for stream, run in groupby(lines, lambda line: line.event.stream):
            await self._compare(stream, list(run))

    async def finish(self) -> Arrival:
        """Return what is missing; raises `ExportError` if it does not go on where the store's log ends."""
        arrival = self._arrival
        arrival.missing = sum(self._in_file.values()) - sum(arrival.there.values())
        if arrival.missing and any(arrival.there.values()):
            for stream in (stream_of(arrival.conversation_id), summary_stream_of(arrival.conversation_id)):
                count = arrival.there.get(stream, 0)
                if count == self._in_file.get(stream, 0) and await self._store.read(stream, after=count, limit=1):
                    raise ExportError(self._last_line, f"{stream} goes on in another way here after event {count}")
        if arrival.missing:
            arrival.open_work = self._work.said()
        return arrival

    def _judged(self, line: Line) -> Event:
        event, faults = self._judge.take(line)
        if event is None or faults:
            raise ExportError(line.number, faults[0])
        return event

    async def _compare(self, stream: str, run: Sequence[Line]) -> None:
        there, before = self._arrival.there, self._in_file.get(stream, 0)
        self._in_file[stream] = run[-1].event.seq
        if there.setdefault(stream, 0) < before:
            return
        stored = await self._store.read(stream, after=before, limit=len(run), first=True)
        if not stored and not before:
            await self._check_not_deleted(stream, run[0])
        for line, event in zip(run, stored, strict=False):
            wanted = line.event
            if event.event_id != wanted.event_id:
                raise ExportError(line.number, f"event {event.seq} of {stream} is another one here: it is another log")
            if (event.type, event.data, event.metadata) != (wanted.type, wanted.data, wanted.metadata):
                raise ExportError(line.number, f"event {event.seq} of {stream} says something else here")
        there[stream] += len(stored)

    async def _check_not_deleted(self, stream: str, line: Line) -> None:
        try:
            await self._store.append(stream, [new_event(line.event)], NOWHERE)
        except StreamMoved:
            return
        except StreamDeleted:
            raise ExportError(line.number, f"{self._arrival.conversation_id} was erased here, for good") from None


def pages(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Yield lines in pieces that fit into memory."""
    page: list[Line] = []
    size = 0
    for line in lines:
        page.append(line)
        size += len(line.event.data)
        if len(page) == CHUNK_EVENTS or size > PAGE_CHARACTERS:
            yield page
            page, size = [], 0
    if page:
        yield page
