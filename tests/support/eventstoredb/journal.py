"""What the double keeps on disk: a line for each append, so that one is there whole or, torn by a kill, not at all."""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Record:
    """An event as the server has it: `number` counts from 0 in its stream, `created` in 100 ns since 1970."""

    position: int
    stream: str
    number: int
    id: UUID
    type: str
    is_json: bool
    data: bytes
    metadata: bytes
    created: int


class Journal:
    """An append-only file. What was added before a SIGKILL is there afterwards; nothing is synced to the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._whole = 0
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o644)

    def read(self) -> Iterator[list[Record]]:
        """Yield what was added, append by append, and cut off a torn end."""
        with self._path.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                self._whole += len(line)
                yield [_record(*fields) for fields in json.loads(line)]
        os.ftruncate(self._file, self._whole)

    def add(self, records: Sequence[Record]) -> None:
        """Add what one append wrote."""
        line = json.dumps([_fields(record) for record in records]).encode() + b"\n"
        written = os.write(self._file, line)
        if written != len(line):
            raise OSError(f"only {written} of {len(line)} bytes went into {self._path}")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _fields(record: Record) -> list[object]:
    data, metadata = b64encode(record.data).decode(), b64encode(record.metadata).decode()
    place = [record.position, record.stream, record.number, str(record.id), record.type]
    return [*place, record.is_json, data, metadata, record.created]


def _record(
    position: int,
    stream: str,
    number: int,
    event_id: str,
    event_type: str,
    is_json: bool,
    data: str,
    metadata: str,
    created: int,
) -> Record:
    decoded = b64decode(data), b64decode(metadata)
    return Record(position, stream, number, UUID(event_id), event_type, is_json, *decoded, created)
