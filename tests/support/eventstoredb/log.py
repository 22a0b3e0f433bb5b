"""The log of the double: its records, its streams, and the server's rules of what may be written.

After `IndexWriter`, `StorageWriterService` and `AllReader` of the server's source. Nothing here waits: each call is
atomic on the event loop.
"""

from __future__ import annotations

import asyncio
import json
import time
from bisect import bisect_left
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID, uuid4

from tests.support.eventstoredb.journal import Journal, Record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DELETED: Final = 2**63 - 1
"""The number of a tombstone, and the $tb (truncate before) of a soft-deleted stream."""
ANY, NO_STREAM, EXISTS = -2, -1, -4
STREAM_DELETED = "$streamDeleted"
EPOCH = "$epoch-information"
REMEMBERED_IDS = 100_000
"""How many recent event ids an append that expects any version is compared with, about 8 MiB of the server's cache."""


class WrongVersion(Exception):
    """The stream's newest number is `actual` (-1: no such stream), not what an append expected."""

    def __init__(self, actual: int) -> None:
        super().__init__(actual)
        self.actual = actual


class Deleted(Exception):
    """The stream has a tombstone, or is soft-deleted where it had to exist."""


class Proposed(NamedTuple):
    """An event that a client wants to append."""

    id: UUID
    type: str
    is_json: bool
    data: bytes
    metadata: bytes


class Receipt(NamedTuple):
    """What an append answers: number (-1: none) and position (-1: not to be found any more) of its last event."""

    number: int
    position: int


class Waiting:
    """A subscription that waits for more; whoever drops it says with what error."""

    def __init__(self) -> None:
        self._stirred = asyncio.Event()
        self._dropped: Exception | None = None

    async def for_more(self) -> None:
        """Return when something may have been written since the last call; raises the error of a drop."""
        await self._stirred.wait()
        self._stirred.clear()
        if self._dropped is not None:
            raise self._dropped

    def stir(self) -> None:
        """Let it look again."""
        self._stirred.set()

    def drop(self, error: Exception) -> None:
        """End it."""
        self._dropped = error
        self._stirred.set()


class Log:
    """All records in order, and for each stream its own; with a journal file it outlives the process."""

    def __init__(self, path: Path | None = None) -> None:
        self.records: list[Record] = []
        self.end = 0
        self.waiting: set[Waiting] = set()
        self._streams: dict[str, list[Record]] = defaultdict(list)
        self._metadata: dict[str, dict[str, int]] = {}
        self._recent: OrderedDict[UUID, list[Record]] = OrderedDict()
        self._journal: Journal | None = None
        if path is not None:
            journal = Journal(path)
            for records in journal.read():
                self._keep(records)
            self._journal = journal
        self.restarted()
        if len(self.records) == 1:
            self._write("$users", [Proposed(uuid4(), "$UserCreated", True, b"{}", b"")])

    def restarted(self) -> None:
        """Do what a starting server does: begin an epoch, and have forgotten what was only in memory."""
        self._recent.clear()
        self._write(EPOCH, [Proposed(uuid4(), EPOCH, True, b"{}", b"")])

    def close(self) -> None:
        """Close the journal."""
        if self._journal is not None:
            self._journal.close()

    def stream(self, name: str) -> list[Record]:
        """Return all records of a stream, those before a truncation too."""
        return self._streams.get(name, [])

    def last(self, name: str) -> int:
        """Return the stream's newest number: -1 if it never was, `DELETED` under a tombstone."""
        records = self.stream(name)
        return records[-1].number if records else -1

    def is_soft_deleted(self, name: str) -> bool:
        """Say whether the stream was deleted and may be written again."""
        return self._metadata.get(name, {}).get("$tb") == DELETED

    def first_readable(self, name: str) -> int:
        """Return the number below which reads of the stream begin."""
        limits = {"$maxCount": 1} if name.startswith("$$") else self._metadata.get(name, {})
        kept = self.last(name) - limits["$maxCount"] + 1 if "$maxCount" in limits else 0
        return max(limits.get("$tb", 0), kept)

    def place(self, position: int) -> int:
        """Return the index of the record at this position; its number of records beyond the end.

        Raises `LookupError` for a position at which no record begins.
        """
        if position >= self.end:
            return len(self.records)
        index = bisect_left(self.records, position, key=lambda record: record.position)
        if self.records[index].position != position:
            raise LookupError(position)
        return index

    def append(self, stream: str, expected: int, events: Sequence[Proposed]) -> Receipt:
        """Append if the version is as expected, or return the old receipt; raises `WrongVersion` or `Deleted`."""
        written = self._check(stream, expected, [event.id for event in events])
        if written is not None:
            readable = written.number >= self.first_readable(stream)
            return Receipt(written.number, written.position if readable else -1)
        if not events:
            return Receipt(self.last(stream), self.end)
        truncated_before = self.last(stream) + 1 if self.is_soft_deleted(stream) else None
        last = self._write(stream, events)
        if truncated_before is not None:
            self._write("$$" + stream, [_metadata({**self._metadata[stream], "$tb": truncated_before})])
        return Receipt(last.number, last.position)

    def delete(self, stream: str, expected: int, *, hard: bool) -> int:
        """Write a tombstone, or the metadata that hide the stream; return the position of that record."""
        self._check(stream, expected, [uuid4()])
        if hard:
            return self._write(stream, [Proposed(uuid4(), STREAM_DELETED, False, b"", b"")], DELETED).position
        if self.last(stream) < 0 and self.last("$$" + stream) < 0:
            raise WrongVersion(-1)
        return self._write("$$" + stream, [_metadata({"$tb": DELETED})]).position

    def _check(self, stream: str, expected: int, ids: Sequence[UUID]) -> Record | None:
        """Return None if the events are to be written, and the last of them if they are already there."""
        actual = self.last(stream)
        if actual == DELETED:
            raise Deleted
        if expected == EXISTS:
            if self.is_soft_deleted(stream):
                raise Deleted
            if actual < 0 and self.last("$$" + stream) < 0:
                raise WrongVersion(actual)
        if expected in (ANY, EXISTS):
            return self._recently_written(stream, ids, actual)
        if expected > actual:
            raise WrongVersion(actual)
        if expected == actual:
            return None
        there = self.stream(stream)[expected + 1 : expected + 1 + len(ids)]
        if ids and [record.id for record in there] == list(ids):
            return there[-1]
        corrupted = bool(ids and there and there[0].id == ids[0])
        if not corrupted and expected == NO_STREAM and self.is_soft_deleted(stream):
            return None
        raise WrongVersion(actual)

    def _recently_written(self, stream: str, ids: Sequence[UUID], actual: int) -> Record | None:
        found: Record | None = None
        for event_id in ids:
            record = next((one for one in reversed(self._recent.get(event_id, [])) if one.stream == stream), None)
            if record is None:
                if found is not None:
                    raise WrongVersion(actual)
                return None
            found = record
        return found

    def _write(self, stream: str, events: Sequence[Proposed], number: int | None = None) -> Record:
        position, records = self.end, []
        following = self.last(stream) + 1 if number is None else number
        for at, event in enumerate(events, following):
            created = time.time_ns() // 100
            records.append(Record(position, stream, at, *event, created))
            position += _size_on_disk(records[-1])
        if self._journal is not None:
            self._journal.add(records)
        self._keep(records)
        for one in self.waiting:
            one.stir()
        return records[-1]

    def _keep(self, records: Sequence[Record]) -> None:
        for record in records:
            self.records.append(record)
            self._streams[record.stream].append(record)
            self._recent.setdefault(record.id, []).append(record)
            if record.stream.startswith("$$"):
                self._metadata[record.stream[2:]] = json.loads(record.data)
        self.end = records[-1].position + _size_on_disk(records[-1])
        while len(self._recent) > REMEMBERED_IDS:
            self._recent.popitem(last=False)


def is_in_all(record: Record) -> bool:
    """Say whether a record is shown in $all at all (`EventFilter.DefaultAllFilter`)."""
    return record.stream != EPOCH


def _metadata(content: dict[str, int]) -> Proposed:
    return Proposed(uuid4(), "$metadata", True, json.dumps(content).encode(), b"")


def _size_on_disk(record: Record) -> int:
    """Return the bytes that a record takes (`PrepareLogRecord.ComputeSizeOnDisk`): hence positions with odd gaps."""
    stream, event_type = len(record.stream.encode()), len(record.type.encode())
    return 88 + _length_of(stream) + stream + _length_of(event_type) + event_type + len(record.data + record.metadata)


def _length_of(count: int) -> int:
    return max(1, (count.bit_length() + 6) // 7)
