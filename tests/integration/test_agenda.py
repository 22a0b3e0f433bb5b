"""Claims on a real database: who holds what, what a finish may hand back, and when somebody looks next."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest

from commands.agent.agenda import AgendaUnavailable, Claim
from infra.agenda import PostgresAgenda, PostgresWaker
from infra.database import Database
from projections.agenda import AGENDA
from projections.schema import ensure_schema
from projections.tables import Table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ENDED = -1.0
"""The length of a lease that is over when it begins, as if its holder had died long ago."""

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


class Rows:
    """The table, with the projector's part and a look into the workers'."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._table = Table(AGENDA)

    def agenda(self, *, lease_s: float = 8.0) -> PostgresAgenda:
        """One worker's way to the table."""
        return PostgresAgenda(self.database, lease_s=lease_s)

    async def fold(
        self,
        *conversations: UUID,
        seq: int,
        at_once: bool = True,
        due_at: datetime | None = None,
        announce: bool = False,
    ) -> None:
        """Write what the projector knows."""
        rows = [
            {
                "conversation_id": one,
                "kind": "turn",
                "seq": seq,
                "due_at": NOW if at_once else due_at,
                "at_once": at_once,
                "state": None,
            }
            for one in sorted(conversations)
        ]
        async with self.database.connection() as connection, connection.transaction():
            await self._table.upsert(connection, rows)
            if announce and AGENDA.announce:
                await connection.execute(AGENDA.announce, {"conversations": list(conversations)})

    async def one(self, conversation_id: UUID) -> dict[str, Any]:
        """Return the workers' columns of a row, and how many seconds from now it wants to be looked at."""
        names = ("seen_seq", "seen_due", "claimed_by", "strikes", "wake_in")
        async with self.database.connection() as connection:
            cursor = await connection.execute(
                "select seen_seq, seen_due, claimed_by, strikes,"
                " extract(epoch from wake_at - clock_timestamp())::float8 from agenda where conversation_id = %s",
                [conversation_id],
            )
            row = await cursor.fetchone()
        assert row is not None
        return dict(zip(names, row, strict=True))


@pytest.fixture
async def rows(database_url: str) -> AsyncIterator[Rows]:
    async with Database(database_url) as database:
        async with database.connection() as connection:
            await ensure_schema(connection, [AGENDA])
        yield Rows(database)


async def test_a_hinted_claim_after_a_dead_holder_is_a_take_over(rows: Rows) -> None:
    one = uuid4()
    await rows.fold(one, seq=2)
    assert (await rows.agenda(lease_s=ENDED).claim(1))[0].takeover is False
    claim = await rows.agenda().claim_hinted(one)
    assert claim is not None
    assert claim.takeover is True
