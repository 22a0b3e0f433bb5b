"""The log of the PostgreSQL event store in the order of its streams, for rebuilds and checks of read models."""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString

from psycopg import sql

from domain.event_store import STREAM_DELETED, StoredEvent
from domain.wire import STREAM, conversation_of, stream_of
from projections.rebuild.ordered_log import Slice

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from projections.ports import Connections

LOG = sql.SQL("log.events")
PAGE_EVENTS = 250
"""As large as events may be, a page of them fits into memory."""
BEHIND = STREAM[:-1] + chr(ord(STREAM[-1]) + 1)
"""The first name behind those of all conversations, by bytes."""

COUNT: LiteralString = "select count(*) from {log} where stream >= %(first)s and stream < %(behind)s"
BOUNDS: LiteralString = """
select stream, n from (
    select stream, row_number() over (order by stream, seq) as n from {log}
    where stream >= %(first)s and stream < %(behind)s
) numbered where n %% %(events)s = 0 order by n
"""
READ: LiteralString = """
select stream, seq, position, event_id, type, data::text, metadata::text from {log}
where stream >= {first} and stream < {next} and (position <= {position} or type = {tombstone}) order by stream, seq
"""
# A page is folded and copied before the next one is asked for.
PATIENCE: LiteralString = "set local idle_in_transaction_session_timeout = '5min'"


class PostgresOrderedLog:
    """An `OrderedLog` over a table of events with an index on (stream, seq); each slice is read in one snapshot."""

    def __init__(self, database: Connections, table: sql.Composable = LOG) -> None:
        self._database, self._table = database, table

    async def slices(self, events: int) -> list[Slice]:
        """Cut the log into slices of about so many events; a stream is in one slice."""
        values = {"first": STREAM, "behind": BEHIND, "events": events}
        async with self._database.connection() as connection:
            counted = await connection.execute(sql.SQL(COUNT).format(log=self._table), values)
            found = await connection.execute(sql.SQL(BOUNDS).format(log=self._table), values)
            [(total,)], bounds = await counted.fetchall(), await found.fetchall()
        slices: list[Slice] = []
        first, before = None, 0
        for stream, number in bounds:
            if stream != first and _is_canonical(stream):
                slices.append(Slice(first, stream, number - before))
                first, before = stream, number
        return [*slices, Slice(first, None, max(0, total - before))]

    async def read(self, piece: Slice, upto: int) -> AsyncGenerator[Sequence[StoredEvent], None]:
        """Yield a slice's events by stream and seq, by a cursor of the server."""
        query = sql.SQL(READ).format(
            log=self._table,
            first=piece.first or STREAM,
            next=piece.next or BEHIND,
            position=upto,
            tombstone=STREAM_DELETED,
        )
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(PATIENCE)
            async with connection.cursor("slice", binary=True) as cursor:
                await cursor.execute(query)
                while rows := await cursor.fetchmany(PAGE_EVENTS):
                    yield [StoredEvent(*row) for row in rows]


def _is_canonical(stream: str) -> bool:
    """Whether the names behind it are those of greater conversations, and the ones before of smaller."""
    conversation_id = conversation_of(stream)
    return conversation_id is not None and stream_of(conversation_id) == stream
