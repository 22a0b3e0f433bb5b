"""A copy of any store's log in PostgreSQL, by streams, for as long as a rebuild or a check of read models needs it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, LiteralString

from psycopg import sql

from domain.event_store import STREAM_DELETED
from domain.wire import PREFIXES
from infra.ordered_log import PATIENCE, PostgresOrderedLog

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from psycopg import AsyncConnection

    from domain.event_store import EventStore, StoredEvent
    from projections.ports import Connections
    from projections.rebuild.ordered_log import Slice

PAGE_EVENTS = 500
NAME = "staged_events"
# what a crash of the server takes is copied once more
CREATE: LiteralString = """
create {kind} table if not exists {table} (
    position bigint primary key, event_id uuid not null, stream text collate "C" not null, seq bigint not null,
    type text collate "C" not null, data json not null, metadata json not null, unique (stream, seq)
)
"""
INSERT: LiteralString = """
insert into {table} (stream, seq, position, event_id, type, data, metadata)
select * from unnest(%b::text[], %b::bigint[], %b::bigint[], %b::uuid[], %b::text[], %b::text[]::json[],
    %b::text[]::json[])
on conflict do nothing
"""
REACHED: LiteralString = "select coalesce(max(position), 0) from {table}"
FORGET: LiteralString = "delete from {table} where stream = any(%s) and type <> %s"


class StagedLog:
    """An `OrderedLog` that copies what it is asked for and does not have yet."""

    def __init__(self, connections: Connections, store: EventStore, table: sql.Composable) -> None:
        self._connections, self._store, self._table = connections, store, table
        self._ordered = PostgresOrderedLog(connections, table)
        self._upto = 0

    async def slices(self, events: int) -> list[Slice]:
        """Cut the log as it is now."""
        await self._extend(await self._store.head())
        return await self._ordered.slices(events)

    async def read(self, piece: Slice, upto: int) -> AsyncGenerator[Sequence[StoredEvent], None]:
        """Yield a slice's events up to a position, by conversation and position."""
        await self._extend(upto)
        async for page in self._ordered.read(piece, upto):
            yield page

    async def _extend(self, upto: int) -> None:
        if upto <= self._upto:
            return
        async with self._connections.connection() as connection:
            row = await (await connection.execute(self._sql(REACHED))).fetchone()
        position = row[0] if row else 0
        while position < upto:
            page = await self._store.read_all(position, limit=PAGE_EVENTS, prefixes=PREFIXES)
            if not page:
                break
            async with self._connections.connection() as connection, connection.transaction():
                await self._copy(connection, page)
            position = page[-1].position
        self._upto = upto

    async def _copy(self, connection: AsyncConnection, page: Sequence[StoredEvent]) -> None:
        columns = (
            [event.stream for event in page],
            [event.seq for event in page],
            [event.position for event in page],
            [event.event_id for event in page],
            [event.type for event in page],
            [event.data for event in page],
            [event.metadata for event in page],
        )
        await connection.execute(self._sql(INSERT), columns, prepare=True)
        if deleted := [event.stream for event in page if event.type == STREAM_DELETED]:
            await connection.execute(self._sql(FORGET), [deleted, STREAM_DELETED])

    def _sql(self, statement: LiteralString) -> sql.Composed:
        return sql.SQL(statement).format(table=self._table)


@asynccontextmanager
async def staged_in(database: Connections, store: EventStore, schema: str) -> AsyncIterator[StagedLog]:
    """Copy the log into a schema, where others find it too; what is there already stays, and it stays afterwards."""
    table = sql.Identifier(schema, NAME)
    async with database.connection() as connection:
        await connection.execute(sql.SQL(CREATE).format(kind=sql.SQL("unlogged"), table=table))
    yield StagedLog(database, store, table)


@asynccontextmanager
async def staged_for_oneself(database: Connections, store: EventStore) -> AsyncIterator[StagedLog]:
    """Copy the log for this block alone: whatever happens to the process, nothing is left of it."""
    async with database.connection() as connection, connection.transaction(force_rollback=True):
        await connection.execute(PATIENCE)
        table = sql.Identifier(f"rejoinder_{NAME}")
        await connection.execute(sql.SQL(CREATE).format(kind=sql.SQL("temporary"), table=table))
        yield StagedLog(_One(connection), store, table)


class _One:
    """One connection, lent to one at a time."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection, self._lock = connection, asyncio.Lock()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """Lend it."""
        async with self._lock:
            yield self._connection
