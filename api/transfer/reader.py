"""The reader of exported files: events line by line, none out of its place, and an error that names the line."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from api.transfer.lines import MOST_BYTES, End, Header, parse
from domain.wire import STREAM, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO
    from uuid import UUID

    from domain.event_store import StoredEvent

CUT_OFF = "the file is cut off: its last line does not say what it holds"


class ExportError(Exception):
    """The file is none that was exported, is cut off, or holds a log that does not fit; the message names the line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


@dataclass(frozen=True, slots=True)
class Line:
    """An event, the number of its line (the header's is 1), and whose it is."""

    number: int
    conversation_id: UUID
    event: StoredEvent


def read_total(path: Path) -> int:
    """Return how many events the last line counts; raises `ExportError` for one that is none or cut off, `OSError`."""
    with path.open("rb") as file:
        if not file.seekable():
            raise OSError(f"{path} is read more than once: save it to a file and name that")
        file.seek(max(0, file.seek(0, os.SEEK_END) - MOST_BYTES))
        last = file.read().rpartition(b'\n{"end"')
        try:
            end = parse(b'{"end"' + last[2])
        except ValueError:
            end = None
        if isinstance(end, End):
            return end.events
        file.seek(0)
        _header(file.readline(MOST_BYTES))
        raise ExportError(1 + sum(1 for _ in file), CUT_OFF)


def read_events(path: Path) -> Iterator[StoredEvent]:
    """Yield the events of all conversations, one conversation's after another's; raises what `read_lines` raises."""
    return (line.event for line in read_lines(path))


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the events with their lines, in the memory of one line.

    Raises `ExportError` where a line is none of an exported file or not the next event of its stream, and at the end
    for a file that is cut off or was changed; `OSError`.
    """
    with path.open("rb") as file:
        digest = sha256(first := file.readline(MOST_BYTES))
        _header(first)
        order = _Order()
        for number, line in enumerate(_lines(file), 2):
            try:
                read = parse(line)
                if isinstance(read, End):
                    order.check_end(read, digest.hexdigest())
                    if file.read(1):
                        raise ValueError("more comes after the end")
                    return
                if isinstance(read, Header):
                    raise ValueError("a second header: import one file after the other")
                conversation_id = order.check(read)
            except ValueError as error:
                raise ExportError(number, str(error)) from error
            digest.update(line)
            yield Line(number, conversation_id, read)
        raise ExportError(order.events + 1, CUT_OFF)


class _Order:
    """Where the next event has to be."""

    def __init__(self) -> None:
        self._conversation: UUID | None = None
        self._before: set[UUID] = set()
        self._seqs: Counter[str] = Counter()
        self._position = 0
        self.events = 0

    def check(self, event: StoredEvent) -> UUID:
        """Return whose event it is; raises `ValueError` if something else had to come first."""
        kind, conversation_id = kind_of(event.stream)
        if conversation_id is None or event.stream != f"{kind}{conversation_id}":
            raise ValueError(f"{event.stream} is no stream of a conversation")
        if conversation_id != self._conversation:
            if conversation_id in self._before:
                raise ValueError(f"{conversation_id} goes on after others: a conversation stands together")
            if kind != STREAM:
                raise ValueError(f"{conversation_id} begins with a summary, before its first event")
            self._conversation, self._position = conversation_id, 0
            self._before.add(conversation_id)
            self._seqs.clear()
        if event.seq != (expected := self._seqs[event.stream] + 1):
            raise ValueError(f"{event.stream} goes on with event {event.seq}, where {expected} has to be")
        if event.position <= self._position:
            raise ValueError(f"position {event.position} does not come after {self._position}")
        self._seqs[event.stream], self._position = event.seq, event.position
        self.events += 1
        return conversation_id

    def check_end(self, end: End, sha256: str) -> None:
        """Raise `ValueError` unless it counts what there was."""
        if (end.conversations, end.events) != (len(self._before), self.events):
            raise ValueError(
                f"it counts {end.events} events of {end.conversations} conversations, "
                f"before it are {self.events} of {len(self._before)}: some are missing"
            )
        if end.sha256 not in (None, sha256):
            raise ValueError(
                'the file was changed since it was exported: export it anew, or take out "sha256" here if that is meant'
            )


def _lines(file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(MOST_BYTES):
        yield line


def _header(line: bytes) -> Header:
    if not line:
        raise ExportError(1, "the file is empty")
    try:
        if isinstance(header := parse(line), Header):
            return header
        raise ValueError("it does not begin as an exported file")
    except ValueError as error:
        raise ExportError(1, str(error)) from error
