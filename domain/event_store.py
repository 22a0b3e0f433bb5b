"""The port to the log: what every event store promises, and the plain records that cross it.

Streams are named by text; their events are numbered 1, 2, 3 … (``seq``) and every event of a store has a global
``position`` that only grows. Positions become visible in order: who has seen p is never later owed less than p.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from uuid import UUID

STREAM_DELETED = "$streamDeleted"
"""The type of the tombstone event that `EventStore.delete` leaves behind; its data and metadata are ``{}``."""

MAX_EVENT_BYTES = 512 * 1024
"""The most UTF-8 bytes that the data of one event may have, in every store."""


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to append. `data` and `metadata` are JSON text; `event_id` is random and fresh per decision."""

    event_id: UUID
    type: str
    data: str
    metadata: str


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as the store has it; `data` and `metadata` are the very text that was appended."""

    stream: str
    seq: int
    position: int
    event_id: UUID
    type: str
    data: str
    metadata: str


class Appended(NamedTuple):
    """The receipt of an append: seq and position of its last event."""

    seq: int
    position: int


@dataclass(frozen=True, slots=True)
class Batch:
    """One delivery of a subscription: the next events, ascending, and how far it has looked.

    Everything up to and including `position` (of the log; for a stream's subscription: up to and including that `seq`)
    has been delivered or filtered out; `events` may be empty. `caught_up` is true when nothing newer was there.
    """

    events: tuple[StoredEvent, ...]
    position: int
    caught_up: bool


class StoreError(Exception):
    """The store could not be reached or refused to work; whether an append was written is unknown."""


class StreamMoved(Exception):
    """An append's expected version was not the stream's: somebody else appended (or less was there than expected)."""

    def __init__(self, stream: str, expected: int, actual: int) -> None:
        super().__init__(f"{stream} is at {actual}, not at {expected}")
        self.stream, self.expected, self.actual = stream, expected, actual


class StreamDeleted(Exception):
    """The stream was deleted for good and takes no more appends."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"{stream} was deleted")
        self.stream = stream


class SlowSubscriber(Exception):
    """A live subscription's bounded queue overflowed; subscribe again from the last position that was taken."""


class EventStore(Protocol):
    """An append-only log of streams. Every method may raise `StoreError` when the store is out of reach."""

    async def append(self, stream: str, events: Sequence[NewEvent], expected: int) -> Appended:
        """Append one or more events, all or none, if the stream's newest seq is `expected` (0: no such stream).

        The same event ids again with the original `expected` return the original receipt and write nothing.
        Raises `StreamMoved`, `StreamDeleted`, or `ValueError` for an event larger than `MAX_EVENT_BYTES`.
        """
        ...

    async def read(
        self, stream: str, *, after: int = 0, before: int | None = None, limit: int | None = None, first: bool = False
    ) -> list[StoredEvent]:
        """Return the events with ``after < seq < before``, ascending.

        `limit` keeps the newest that many, with `first` the oldest. An unknown or deleted stream is empty.
        """
        ...

    async def read_all(self, after_position: int, *, limit: int, prefixes: Sequence[str] = ()) -> list[StoredEvent]:
        """Return up to `limit` events with a greater position, ascending, of streams that begin with a prefix."""
        ...

    def subscribe(self, after_position: int, *, prefixes: Sequence[str] = ()) -> AsyncGenerator[Batch, None]:
        """Catch up from `after_position`, then stay live; an empty batch says how far a quiet log was looked at.

        Close it (``aclosing``) to end it. Raises `SlowSubscriber` when its reader falls behind the live events.
        """
        ...

    def subscribe_stream(self, stream: str, after: int) -> AsyncGenerator[Batch, None]:
        """The same for one stream, from a seq; a deleted stream delivers its tombstone."""
        ...

    async def delete(self, stream: str) -> None:
        """Delete a stream for good, leaving a tombstone event; doing it again does nothing."""
        ...

    async def head(self) -> int:
        """Return the position of the newest event of the store, 0 if there is none."""
        ...
