"""The event store of tests: the `eventsourcing` library's in-memory recorder behind our port."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Self
from uuid import UUID, uuid4

from eventsourcing.persistence import StoredEvent as RecordedEvent
from eventsourcing.popo import POPOApplicationRecorder

from domain.event_store import STREAM_DELETED, Appended, Batch, NewEvent, StoredEvent, StreamDeleted, StreamMoved
from infra.fan_out import FanOut, by_position, by_seq, follow
from infra.storable import check_storable, parsed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

EVERYTHING = 2**63


class MemoryEventStore:
    """An `EventStore` that lasts as long as its object. Nothing in it waits, so every call is atomic.

    Leaving its context ends the subscriptions; the events stay.
    """

    def __init__(self) -> None:
        self._recorder = POPOApplicationRecorder()
        self._deleted: set[str] = set()
        self._fan_out = FanOut()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._fan_out.close()

    async def append(self, stream: str, events: Sequence[NewEvent], expected: int) -> Appended:
        """Append, and hand the events to the subscribers."""
        check_storable(stream, events)
        for event in events:
            parsed(event.data)
            parsed(event.metadata)
        if stream in self._deleted:
            raise StreamDeleted(stream)
        version = self._version(stream)
        if version != expected:
            there = self._stream(stream, after=expected)[: len(events)]
            if [e.event_id for e in there] == [e.event_id for e in events]:
                return Appended(there[-1].seq, there[-1].position)
            raise StreamMoved(stream, expected, version)
        return self._record(stream, events, version)

    async def read(
        self, stream: str, *, after: int = 0, before: int | None = None, limit: int | None = None, first: bool = False
    ) -> list[StoredEvent]:
        """Return the events with ``after < seq < before``, ascending."""
        if stream in self._deleted:
            return []
        last = self._version(stream) if before is None else min(before - 1, self._version(stream))
        if limit is not None and first:
            last = min(last, after + limit)
        elif limit is not None:
            after = max(after, last - limit)
        return self._stream(stream, after, last)

    async def read_all(self, after_position: int, *, limit: int, prefixes: Sequence[str] = ()) -> list[StoredEvent]:
        """Return up to `limit` events with a greater position, ascending, of streams that begin with a prefix."""
        wanted = tuple(prefixes) or ("",)
        notifications = self._recorder.select_notifications(after_position, EVERYTHING, inclusive_of_start=False)
        events = [event for event in map(_stored, notifications) if event.stream.startswith(wanted)]
        return [event for event in events if self._is_there(event)][:limit]

    def subscribe(self, after_position: int, *, prefixes: Sequence[str] = ()) -> AsyncGenerator[Batch, None]:
        """Catch up from `after_position`, then stay live."""

        async def page(after: int) -> Batch:
            events = await self.read_all(after, limit=EVERYTHING, prefixes=prefixes)
            return Batch(tuple(events), max(after, await self.head()), caught_up=True)

        return follow(self._fan_out.joined(prefixes), page, after_position, by_position)

    def subscribe_stream(self, stream: str, after: int) -> AsyncGenerator[Batch, None]:
        """Catch up with one stream from a seq, then stay live; a deleted stream delivers its tombstone."""

        async def page(after: int) -> Batch:
            events = tuple(event for event in self._stream(stream, after) if self._is_there(event))
            return Batch(events, events[-1].seq if events else after, caught_up=True)

        return follow(self._fan_out.joined_stream(stream), page, after, by_seq)

    async def delete(self, stream: str) -> None:
        """Hide the stream's events for good and record a tombstone; doing it again does nothing."""
        if stream not in self._deleted:
            self._deleted.add(stream)
            self._record(stream, [NewEvent(uuid4(), STREAM_DELETED, "{}", "{}")], self._version(stream))

    async def head(self) -> int:
        """Return the position of the newest event of the store, 0 if there is none."""
        return self._recorder.max_notification_id() or 0

    def _record(self, stream: str, events: Sequence[NewEvent], version: int) -> Appended:
        head = self._recorder.max_notification_id() or 0
        recorded = [
            RecordedEvent(stream, version + n, new.type, _state(head + n, new)) for n, new in enumerate(events, start=1)
        ]
        self._recorder.insert_events(recorded)
        stored = tuple(map(_stored, recorded))
        self._fan_out.deliver(stored, stored[-1].position, caught_up=True)
        return Appended(stored[-1].seq, stored[-1].position)

    def _version(self, stream: str) -> int:
        newest = self._recorder.select_events(stream, desc=True, limit=1)
        return newest[0].originator_version if newest else 0

    def _stream(self, stream: str, after: int, last: int | None = None) -> list[StoredEvent]:
        return [_stored(event) for event in self._recorder.select_events(stream, gt=after, lte=last)]

    def _is_there(self, event: StoredEvent) -> bool:
        return event.stream not in self._deleted or event.type == STREAM_DELETED


def _state(position: int, event: NewEvent) -> bytes:
    return json.dumps([position, str(event.event_id), event.data, event.metadata]).encode()


def _stored(event: RecordedEvent) -> StoredEvent:
    position, event_id, data, metadata = json.loads(event.state)
    stream, seq = str(event.originator_id), event.originator_version
    return StoredEvent(stream, seq, position, UUID(event_id), event.topic, data, metadata)
