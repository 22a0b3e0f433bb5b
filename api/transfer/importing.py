"""Logs on their way in: what a store lacks of a file is appended.

The events keep their ids and seqs: an import that was broken off is finished by the next one of the same file, and one
of what is there already does nothing.
"""

from __future__ import annotations

from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Protocol

from api.transfer.examining import pages
from api.transfer.judging import new_event
from api.transfer.reader import ExportError, read_lines
from commands.chunks import first_chunk
from domain.event_store import StreamDeleted, StreamMoved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from uuid import UUID

    from api.transfer.examining import Arrival
    from api.transfer.reader import Line
    from domain.event_store import EventStore


class Holds(Protocol):
    """Keeps workers away from conversations, whatever happens to this process."""

    async def hold(self, conversation_id: UUID) -> bool:
        """Keep all workers away, durably; False if one is at it."""
        ...

    async def release(self, conversation_id: UUID) -> None:
        """Let workers look, if they were kept away."""
        ...


async def append_missing(
    path: Path, store: EventStore, holds: Holds, arrivals: Sequence[Arrival], progress: Callable[[int], None]
) -> None:
    """Append what is missing of each conversation; workers see all of it or nothing.

    Raises `ExportError` if the store is no longer as it was when it was examined, or the file is not.
    """
    known = {arrival.conversation_id: arrival for arrival in arrivals}
    for arrival in arrivals:
        if not arrival.missing:
            await holds.release(arrival.conversation_id)
    if not any(arrival.missing for arrival in arrivals):
        return
    missing = (line for line in read_lines(path) if _is_missing(line, known))
    done = 0
    for conversation_id, lines in groupby(missing, lambda line: line.conversation_id):
        chunks = _chunks(lines)
        some = list(islice(chunks, 2))
        if len(some) > 1 and not await holds.hold(conversation_id):
            raise ExportError(some[0][0].number, f"{conversation_id} is being worked on here: it is another log")
        for chunk in chain(some, chunks):
            await _append(store, chunk)
            done += len(chunk)
            progress(done)
        await holds.release(conversation_id)  # it may be held by an import that was killed


def _is_missing(line: Line, known: Mapping[UUID, Arrival]) -> bool:
    if (arrival := known.get(line.conversation_id)) is None:
        raise ExportError(line.number, "the file was changed meanwhile")
    return line.event.seq > arrival.there.get(line.event.stream, 0)


def _chunks(lines: Iterator[Line]) -> Iterator[Sequence[Line]]:
    """Yield lines in pieces of one stream that one append takes."""
    for _, run in groupby(lines, lambda line: line.event.stream):
        for page in pages(run):
            while page:
                count = len(first_chunk([new_event(line.event) for line in page]))
                yield page[:count]
                page = page[count:]


async def _append(store: EventStore, chunk: Sequence[Line]) -> None:
    first = chunk[0]
    try:
        await store.append(first.event.stream, [new_event(line.event) for line in chunk], first.event.seq - 1)
    except (StreamMoved, StreamDeleted) as error:
        raise ExportError(first.number, f"{error}: somebody was at it meanwhile, it is another log now") from error
