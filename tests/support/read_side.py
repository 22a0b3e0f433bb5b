"""A read side on a real database: the log, the projections' tables, and a projector that runs while one needs it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from domain.event_store import NewEvent
from infra.database import Database
from infra.leases import Leases
from infra.postgres_event_store import PostgresEventStore
from projections.catalog import PROJECTIONS
from projections.positions import Positions
from projections.projector import Projector
from projections.schema import ensure_schema
from projections.status import projection_statuses
from projections.tables import Table
from tests.support.given import NOW
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from domain.event_store import EventStore, StoredEvent
    from projections.projection import Projection, Row

ALL = tuple(projection.name for projection in PROJECTIONS)
LOOK_EVERY_S = 0.02


class ReadSide:
    """A database with the tables of projections, and the log that they follow."""

    def __init__(self, store: EventStore, database: Database, projections: Sequence[Projection]) -> None:
        self.store, self.database, self.projections = store, database, projections
        self.positions = Positions(database)

    @asynccontextmanager
    async def projecting(self) -> AsyncIterator[Projector]:
        """Run a projector."""
        projector = Projector(self.store, self.database, Leases(self.database), self.projections)
        task = asyncio.create_task(projector.run())
        try:
            yield projector
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def append(self, log: Iterable[StoredEvent]) -> int:
        """Append events one by one, in their order; return the position of the last."""
        position = 0
        for event in log:
            new = NewEvent(event.event_id, event.type, event.data, event.metadata)
            position = (await self.store.append(event.stream, [new], event.seq - 1)).position
        return position

    async def reached(self, position: int, *names: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until projections (all) have folded a position."""
        waited_for = names or [projection.name for projection in self.projections]
        assert await self.positions.wait(waited_for, position, timeout_s), await self.execute(
            "select name, position, status, error from projections"
        )

    async def rows(self, projection: Projection) -> dict[tuple[Any, ...], Row]:
        """Return a projection's table by key, ascending."""
        table = Table(projection)
        found = await self.execute(f"select {', '.join(table.columns)} from {projection.name}")
        rows = [dict(zip(table.columns, values, strict=True)) for values in found]
        return dict(sorted((tuple(row[column] for column in table.key), row) for row in rows))

    async def until(self, query: str, *values: Any) -> None:
        """Wait until a query finds a row."""
        async with asyncio.timeout(PATIENCE_S):
            while not await self.execute(query, *values):  # noqa: ASYNC110 - the database tells nobody of it
                await asyncio.sleep(LOOK_EVERY_S)

    async def statuses(self, *, now: datetime = NOW) -> dict[str, dict[str, Any]]:
        """Return how projections stand, by name."""
        async with self.database.connection() as connection:
            return {one["name"]: one for one in await projection_statuses(connection, self.store, now=now)}

    @asynccontextmanager
    async def holding(self, statement: str) -> AsyncIterator[None]:
        """Hold the locks that a statement takes, however long the block runs."""
        async with await self.database.connect() as connection:
            await connection.execute("set idle_in_transaction_session_timeout = 0")
            async with connection.transaction():
                await connection.execute(statement)
                yield

    async def execute(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        async with self.database.connection() as connection:
            cursor = await connection.execute(query, values or None)
            return await cursor.fetchall() if cursor.description else []


@asynccontextmanager
async def open_read_side(
    database_url: str,
    projections: Sequence[Projection] = PROJECTIONS,
    event_store: AbstractAsyncContextManager[EventStore] | None = None,
) -> AsyncIterator[ReadSide]:
    """Open a migrated database, and the log in it or another one, and make the projections' tables."""
    async with (
        event_store or PostgresEventStore(database_url) as store,
        Database(database_url, wait_s=PATIENCE_S) as database,
    ):
        async with database.connection() as connection:
            await ensure_schema(connection, projections)
        read_side = ReadSide(store, database, projections)
        listening = asyncio.create_task(read_side.positions.run())
        try:
            yield read_side
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
