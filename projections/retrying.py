"""Fold parked conversations again, each from its first event, and let go of those where that works now.

Any process may: it holds the row in ``parked`` meanwhile, and a projector that meets the conversation waits for it.
"""

from __future__ import annotations

from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from domain.wire import stream_of, summary_stream_of
from projections.advance import Led, skip
from projections.parking import AT_ONCE, Sieve
from projections.span import Span
from projections.versions import ProjectionMismatch, stored_versions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from uuid import UUID

    from psycopg import AsyncConnection

    from domain.event_store import EventStore, StoredEvent
    from projections.event import Event
    from projections.ports import Connections
    from projections.projection import Projection, Row

PAGE = 500

NEXT = """
select conversation_id from parked where projection = %(name)s and tried_at < %(before)s
order by tried_at, conversation_id limit 1
"""
COUNT = "select count(*) from parked where projection = %s"
# the version is looked at under the lock: a rebuild that replaces the table replaces these rows too
HOLD = "select last_position from parked where projection = %s and conversation_id = %s for update"
STILL = """
update parked set seq = %s, position = %s, event_id = %s, type = %s, error = %s, attempts = attempts + 1,
    tried_at = clock_timestamp()
where projection = %s and conversation_id = %s
"""
UNPARK = "delete from parked where projection = %s and conversation_id = %s"
SKIPPED_NONE = "delete from skipped where projection = %s and conversation_id = %s and position <= %s"


class Retried(NamedTuple):
    """How many conversations flow again, and how many are parked."""

    retried: int
    parked: int


async def retry(database: Connections, store: EventStore, projection: Projection) -> Retried:
    """Fold each parked conversation of a projection again, once; what is refused again stays with the new reason.

    Raises `ProjectionMismatch` if the table is not of this code's version, and `StoreError`.
    """
    retried = 0
    async with database.connection() as connection:
        [(before,)] = await (await connection.execute("select clock_timestamp()")).fetchall()
    while found := await _next(database, projection, before):
        retried += await fold_again(database, store, projection, found)
    async with database.connection() as connection:
        [(parked,)] = await (await connection.execute(COUNT, [projection.name])).fetchall()
    return Retried(retried, parked)


async def fold_again(database: Connections, store: EventStore, projection: Projection, conversation_id: UUID) -> bool:
    """Make a parked conversation's rows anew from its whole log; False if it stays parked. Raises as `retry` does."""
    led = Led(projection, epoch=0)
    key = (projection.name, conversation_id)
    async with database.connection() as connection, connection.transaction():
        await connection.execute(AT_ONCE)
        held = await (await connection.execute(HOLD, key)).fetchone()
        if held is None:
            return True
        await _check_version(connection, projection)
        sieve = Sieve(connection, led)
        opened: dict[UUID, Sequence[Row]] = {}
        skipped: list[Event] = []
        async for span in _spans(store, conversation_id, held[0]):
            skipped += span.skipped
            if conversations := span.events_for(projection):
                opened = await sieve.fold(opened, conversations)
            if sieve.refused:
                break
        await _remove_others(connection, led, conversation_id, sieve.written)
        if refused := sieve.refused.get(conversation_id):
            event = refused.event
            values = (event.seq, event.position, event.event_id, event.type, refused.reason)
            await connection.execute(STILL, (*values, *key))
        else:
            await connection.execute(UNPARK, key)
            await connection.execute(SKIPPED_NONE, (*key, held[0]))
            await skip(connection, [projection.name], skipped)
    return not sieve.refused


async def _next(database: Connections, projection: Projection, before: object) -> UUID | None:
    async with database.connection() as connection:
        row = await (await connection.execute(NEXT, {"name": projection.name, "before": before})).fetchone()
    return row[0] if row else None


async def _check_version(connection: AsyncConnection, projection: Projection) -> None:
    stored = (await stored_versions(connection, [projection.name])).get(projection.name)
    if stored != projection.version:
        raise ProjectionMismatch(
            f"the read model {projection.name} is of version {stored or 'none'}, this code's is "
            f"{projection.version}: retry with the Rejoinder that projects it"
        )


async def _spans(store: EventStore, conversation_id: UUID, upto: int) -> AsyncIterator[Span]:
    """Yield a conversation up to a position, piece by piece; nothing of one that was deleted."""
    after = 0
    beside: deque[StoredEvent] = deque()
    while page := await store.read(stream_of(conversation_id), after=after, limit=PAGE, first=True):
        if not after:
            beside.extend(await store.read(summary_stream_of(conversation_id)))
        after = page[-1].seq
        before = page[-1].position if len(page) == PAGE else upto
        while beside and beside[0].position <= before:
            page.append(beside.popleft())
        yield Span(0, upto, sorted((event for event in page if event.position <= upto), key=attrgetter("position")))
        if before >= upto:
            return


async def _remove_others(
    connection: AsyncConnection, led: Led, conversation_id: UUID, written: set[tuple[object, ...]]
) -> None:
    """Remove rows that the log does not explain; those that it does keep their `extra` columns."""
    query = f"select {', '.join(led.table.key)} from {led.projection.name} where conversation_id = %s"
    found = await (await connection.execute(query, [conversation_id])).fetchall()
    if others := [key for key in found if key not in written]:
        await led.table.remove(connection, others)
