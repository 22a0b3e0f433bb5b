"""The log of the PostgreSQL event store in the order of conversations, for rebuilds and checks of read models."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, LiteralString

from psycopg import sql

from domain.event_store import STREAM_DELETED, StoredEvent
from domain.wire import STREAM, SUMMARY_STREAM, conversation_of, stream_of
from projections.rebuild.ordered_log import Slice

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from psycopg import AsyncConnection, AsyncServerCursor
    from psycopg.rows import TupleRow

    from projections.ports import Connections

LOG = sql.SQL("log.events")
PAGE_EVENTS = 250
"""As large as events may be, a page of them fits into memory."""
BEHIND = {prefix: prefix[:-1] + chr(ord(prefix[-1]) + 1) for prefix in (STREAM, SUMMARY_STREAM)}
"""The first name behind those of all streams that begin so, by bytes."""

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
    """An `OrderedLog` over a table of events with an index on (stream, seq).

    What is read of a slice is of one moment, or a little later for the summaries: up to a position that is one.
    """

    def __init__(self, database: Connections, table: sql.Composable = LOG) -> None:
        self._database, self._table = database, table

    async def slices(self, events: int) -> list[Slice]:
        """Cut the log into slices of about so many events; a stream is in one slice."""
        values = {"first": STREAM, "behind": BEHIND[STREAM], "events": events}
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
        """Yield a slice's events by conversation and position, by two cursors of the server."""
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(PATIENCE)
            own, beside = [await self._cursor(connection, prefix, piece, upto) for prefix in (STREAM, SUMMARY_STREAM)]
            async with own, beside:
                waiting = deque(await _page(beside))
                while page := await _page(own):
                    last = _place(page[-1])
                    among = []
                    while waiting and _place(waiting[0]) < last:
                        among.append(waiting.popleft())
                        if not waiting:
                            waiting.extend(await _page(beside))
                    yield sorted([*page, *among], key=_place) if among else page
                while waiting:
                    yield list(waiting)
                    waiting = deque(await _page(beside))

    async def _cursor(
        self, connection: AsyncConnection, prefix: str, piece: Slice, upto: int
    ) -> AsyncServerCursor[TupleRow]:
        query = sql.SQL(READ).format(
            log=self._table,
            first=prefix + (piece.first or STREAM).removeprefix(STREAM),
            next=prefix + piece.next.removeprefix(STREAM) if piece.next else BEHIND[prefix],
            position=upto,
            tombstone=STREAM_DELETED,
        )
        cursor = connection.cursor(f"slice of {prefix}", binary=True)
        await cursor.execute(query)
        return cursor


async def _page(cursor: AsyncServerCursor[TupleRow]) -> list[StoredEvent]:
    return [StoredEvent(*row) for row in await cursor.fetchmany(PAGE_EVENTS)]


def _place(event: StoredEvent) -> tuple[str, int]:
    """Return by what streams are merged: whose the event is, and where in the log."""
    return event.stream.partition("-")[2], event.position


def _is_canonical(stream: str) -> bool:
    """Whether the names behind it are those of greater conversations, and the ones before of smaller."""
    conversation_id = conversation_of(stream)
    return conversation_id is not None and stream_of(conversation_id) == stream
