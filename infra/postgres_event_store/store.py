"""The event store on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self
from uuid import uuid4

from domain.event_store import STREAM_DELETED, Batch, StoredEvent
from infra.database import CONNECT_TIMEOUT_S, Database
from infra.fan_out import FanOut, by_position, by_seq, follow
from infra.postgres_event_store.appender import AppendLane
from infra.postgres_event_store.connection import Patience, fetch
from infra.postgres_event_store.subscriptions import HEAD, PAGE_EVENTS, READ_ALL, LiveReader
from infra.storable import check_storable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from typing import LiteralString

    from psycopg.rows import TupleRow

    from domain.event_store import Appended, NewEvent

PATIENCE_SECONDS = 15.0
READERS = 4
MOST = 2**63 - 1

READ_PREFIXED: LiteralString = """
    select stream, seq, position, event_id, type, data::text, metadata::text from log.events
    where position > %b::bigint and stream ^@ any (%b::text[]) order by position limit %b::bigint
"""
READ_OLDEST: LiteralString = """
    select stream, seq, position, event_id, type, data::text, metadata::text from log.events
    where stream = %b::text and seq > %b::bigint and seq < %b::bigint order by seq limit %b::bigint
"""
READ_NEWEST: LiteralString = """
    select stream, seq, position, event_id, type, data::text, metadata::text from log.events
    where stream = %b::text and seq > %b::bigint and seq < %b::bigint order by seq desc limit %b::bigint
"""
DELETE: LiteralString = "select log.delete_stream(%b::text, %b::uuid)"


class PostgresEventStore:
    """An `EventStore` in the schema `log` of a PostgreSQL database (migration 0001).

    An async context manager; use it in one event loop. It holds one connection for appends, up to `READERS` for reads
    and, from the first subscription on, one that listens. An outage is borne for `patience` seconds, from then on
    for one: what cannot be settled until then raises `StoreError`. Closing it ends its subscriptions.
    """

    def __init__(self, dsn: str, *, patience: float = PATIENCE_SECONDS) -> None:
        self._patience = Patience(patience)
        self._database = Database(
            dsn, max_connections=READERS, application_name="rejoinder log", wait_s=min(patience, CONNECT_TIMEOUT_S)
        )
        self._lane = AppendLane(self._database, self._patience)
        self._fan_out = FanOut()
        self._live = LiveReader(self._database, self._fan_out, self._patience)

    async def __aenter__(self) -> Self:
        await self._patience.insist(self._database.__aenter__)
        try:
            await self._lane.open()
        except BaseException:  # a cancellation too: the pool would stay open
            await self._database.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._fan_out.close()
        await self._live.close()
        await self._lane.close()
        await self._database.__aexit__()

    async def append(self, stream: str, events: Sequence[NewEvent], expected: int) -> Appended:
        """Append in a group with whoever appends at the same time; durable when it returns."""
        return await self._lane.append(stream, events, expected, check_storable(stream, events))

    async def read(
        self, stream: str, *, after: int = 0, before: int | None = None, limit: int | None = None, first: bool = False
    ) -> list[StoredEvent]:
        """Return the events with ``after < seq < before``, ascending."""
        events = await self._read(stream, after, MOST if before is None else before, limit, first=first)
        return [event for event in events if event.type != STREAM_DELETED]

    async def read_all(self, after_position: int, *, limit: int, prefixes: Sequence[str] = ()) -> list[StoredEvent]:
        """Return up to `limit` events with a greater position, ascending, of streams that begin with a prefix."""
        after = min(after_position, MOST)
        if prefixes:
            rows = await self._fetch(READ_PREFIXED, after, list(prefixes), limit)
        else:
            rows = await self._fetch(READ_ALL, after, limit)
        return [StoredEvent(*row) for row in rows]

    def subscribe(self, after_position: int, *, prefixes: Sequence[str] = ()) -> AsyncGenerator[Batch, None]:
        """Catch up from `after_position`, then stay live."""

        async def page(after: int) -> Batch:
            await self._live.started()
            head = await self.head() if prefixes else after
            events = tuple(await self.read_all(after, limit=PAGE_EVENTS, prefixes=prefixes))
            full = len(events) == PAGE_EVENTS
            reached = events[-1].position if events else after
            return Batch(events, reached if full else max(reached, head), caught_up=not full)

        return follow(self._fan_out.joined(prefixes), page, after_position, by_position)

    def subscribe_stream(self, stream: str, after: int) -> AsyncGenerator[Batch, None]:
        """Catch up with one stream from a seq, then stay live; a deleted stream delivers its tombstone."""

        async def page(after: int) -> Batch:
            await self._live.started()
            events = tuple(await self._read(stream, after, MOST, PAGE_EVENTS, first=True))
            return Batch(events, events[-1].seq if events else after, caught_up=len(events) < PAGE_EVENTS)

        return follow(self._fan_out.joined_stream(stream), page, after, by_seq)

    async def delete(self, stream: str) -> None:
        """Delete a stream for good, leaving a tombstone event; doing it again does nothing."""
        await self._fetch(DELETE, stream, uuid4())

    async def head(self) -> int:
        """Return the position of the newest event of the store, 0 if there is none."""
        [(position,)] = await self._fetch(HEAD)
        return int(position)

    async def _read(self, stream: str, after: int, before: int, limit: int | None, *, first: bool) -> list[StoredEvent]:
        query = READ_OLDEST if first else READ_NEWEST
        rows = await self._fetch(query, stream, min(after, MOST), min(before, MOST), MOST if limit is None else limit)
        return [StoredEvent(*row) for row in (rows if first else reversed(rows))]

    async def _fetch(self, query: LiteralString, *params: object) -> list[TupleRow]:
        async def attempt() -> list[TupleRow]:
            async with self._database.connection() as connection:
                return await fetch(connection, self._patience.seconds, query, params)

        return await self._patience.insist(attempt)
