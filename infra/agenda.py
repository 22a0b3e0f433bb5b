"""The workers' side of the read model `agenda`: claims by lease on PostgreSQL's clock, and the hints that wake.

The projector owns seq, due_at and state; only the columns that say what a worker saw and who holds a row are written
here. Losing any of it in a crash costs at most a second claim, so nothing waits for the disk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Literal, LiteralString
from uuid import UUID, uuid4

import psycopg

from commands.agent.agenda import AgendaUnavailable, Claim
from infra.database import DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Collection
    from datetime import datetime

    from psycopg import AsyncCursor

    from infra.database import Database

logger = logging.getLogger(__name__)

WAKE, AGENDA = "wake", "agenda"
"""Channels; the second one's name goes on with the kind of work."""
MOST_PAUSES = 15
"""What fails again and again is tried again after one pause, two, three, … but never more than so many."""
ANSWER_S = 8.0
"""What comes later comes after the lease's end, and is worth nothing."""
SOON_S = 5.0
"""Workers look at least so often: what is announced for later than that, such as the end of a lease, wakes nobody."""
HINT_S = 1.0
"""A hint that takes longer is given up: a command is not answered before."""

_QUICK: LiteralString = "quick as materialized (select set_config('synchronous_commit', 'off', true))"

# Who claims what was not handed back takes over, and `strikes` counts how often in a row: a claim that is none begins
# at 0 again. (The former holder itself cannot be returned: a CTE would not see it once the row is updated.)
_HOLD: LiteralString = """
    claimed_by = %(token)s, hold_until = clock_timestamp() + %(lease)s * interval '1 second',
    strikes = case when a.claimed_by is null then 0 else a.strikes + 1 end
"""

# What is parked may be many, so only the index on wake_at will do: hence now() and not clock_timestamp(), which is
# volatile, and an order that no index has.
_DUE: LiteralString = "select a.conversation_id from agenda a, quick where a.kind = %(kind)s and a.wake_at <= now()"
_EXPIRED: LiteralString = f"{_DUE} and (a.seq <= a.seen_seq or not a.at_once)"


def _claiming(wanted: LiteralString) -> LiteralString:
    return f"""
with {_QUICK}, due as materialized (
    {wanted} order by a.due_at + interval '0' limit %(limit)s for update of a skip locked)
update agenda a set {_HOLD}
from due where a.conversation_id = due.conversation_id and a.kind = %(kind)s
returning a.conversation_id, a.strikes, a.seq
"""


_CLAIM, _CLAIM_EXPIRED = _claiming(_DUE), _claiming(_EXPIRED)

_CLAIM_HINTED: LiteralString = f"""
with {_QUICK}
insert into agenda as a (conversation_id, kind, claimed_by, hold_until)
select %(id)s, %(kind)s, %(token)s, clock_timestamp() + %(lease)s * interval '1 second' from quick
on conflict (conversation_id, kind) do update set {_HOLD}
    where a.hold_until is null or a.hold_until < clock_timestamp()
returning a.conversation_id, a.strikes, a.seq
"""

_EXTEND: LiteralString = f"""
with {_QUICK}, mine as materialized (
    select a.conversation_id
    from agenda a join unnest(%(ids)s::uuid[], %(tokens)s::uuid[]) c(id, token)
        on a.conversation_id = c.id and a.claimed_by = c.token and a.kind = %(kind)s, quick
    order by a.conversation_id for update of a)
update agenda a set hold_until = clock_timestamp() + %(lease)s * interval '1 second'
from mine where a.conversation_id = mine.conversation_id and a.kind = %(kind)s
returning a.conversation_id
"""

# The clock of who says when it is due may be behind this one: without a least delay such a row would be claimed and
# handed back again and again until that clock has come so far.
_FINISH: LiteralString = f"""
with {_QUICK}, done as (
    update agenda a
    set seen_seq = %(seq)s, claimed_by = null, hold_until = null, strikes = 0,
        seen_due = case when %(due)s::timestamptz is not null
            then greatest(%(due)s::timestamptz, clock_timestamp() + interval '100 milliseconds') end
    from quick
    where a.conversation_id = %(id)s and a.kind = %(kind)s and a.claimed_by = %(token)s and a.seq <= %(seq)s
    returning a.seen_due)
select case when seen_due is not null then pg_notify('agenda ' || %(kind)s, extract(epoch from seen_due)::text) end
from done
"""

_RELEASE: LiteralString = f"""
with {_QUICK}, released as (
    update agenda a
    set claimed_by = case when %(failed)s then a.claimed_by end,
        hold_until = clock_timestamp() + %(pause)s * least(a.strikes + 1, %(longest)s) * interval '1 second'
    from quick where a.conversation_id = %(id)s and a.kind = %(kind)s and a.claimed_by = %(token)s
    returning a.hold_until)
select pg_notify('agenda ' || %(kind)s, extract(epoch from hold_until)::text) from released
"""

# Never waits for a row: the projector locks its rows in another order. A holder that says nothing for so long is dead,
# and nobody will take over from it what owes nothing.
_SWEEP: LiteralString = f"""
with {_QUICK}, idle as materialized (
    select a.conversation_id, a.kind from agenda a, quick
    where a.wake_at is null and a.state is null and a.seq >= a.seen_seq
        and (a.hold_until is null or a.hold_until < clock_timestamp()
            - case when a.claimed_by is null then interval '0' else interval '1 hour' end)
    for update of a skip locked)
delete from agenda a using idle where a.conversation_id = idle.conversation_id and a.kind = idle.kind
"""

_DUE_IN: LiteralString = """
select extract(epoch from min(wake_at) - clock_timestamp())::float8 from agenda
where kind = %(kind)s and wake_at is not null
"""


class PostgresAgenda:
    """The agenda of conversations that owe work of one kind, in PostgreSQL."""

    def __init__(self, database: Database, *, lease_s: float, kind: Literal["turn", "compaction"] = "turn") -> None:
        self._database, self._lease_s, self._kind = database, lease_s, kind

    async def claim(self, limit: int) -> list[Claim]:
        """Claim up to `limit` conversations that are due."""
        return await self._claim(_CLAIM, limit)

    async def claim_expired(self, limit: int) -> list[Claim]:
        """Claim up to `limit` conversations whose deadline has passed, as far as is known here."""
        return await self._claim(_CLAIM_EXPIRED, limit)

    async def claim_hinted(self, conversation_id: UUID) -> Claim | None:
        """Claim this conversation unless another's claim, or a pause, is live."""
        token = uuid4()
        async with self._run(_CLAIM_HINTED, id=conversation_id, token=token, lease=self._lease_s) as cursor:
            row = await cursor.fetchone()
            return _claim(token, *row) if row else None

    async def extend(self, claims: Collection[Claim]) -> set[UUID]:
        """Renew these claims; returns the conversations that are still held."""
        ids, tokens = [claim.conversation_id for claim in claims], [claim.token for claim in claims]
        async with self._run(_EXTEND, ids=ids, tokens=tokens, lease=self._lease_s) as cursor:
            return {row[0] async for row in cursor}

    async def finish(self, claim: Claim, seq: int, due_at: datetime | None) -> bool:
        """Hand back what rests at `seq`; False when newer events were folded, or the claim was lost."""
        async with self._run(_FINISH, id=claim.conversation_id, token=claim.token, seq=seq, due=due_at) as cursor:
            return await cursor.fetchone() is not None

    async def release(self, claim: Claim, *, pause_s: float, failed: bool) -> None:
        """Let go unfinished; `failed` makes the next claim a take-over. The pause grows with take-overs in a row."""
        values = {"pause": pause_s, "failed": failed, "longest": MOST_PAUSES}
        async with self._run(_RELEASE, id=claim.conversation_id, token=claim.token, **values):
            pass

    async def due_in(self) -> float | None:
        """Return the seconds until something is due, None when nothing is."""
        async with self._run(_DUE_IN) as cursor:
            row = await cursor.fetchone()
            return row[0] if row else None

    async def sweep(self) -> None:
        """Forget conversations that owe nothing; those of whom more is known here than was folded stay."""
        async with self._run(_SWEEP):
            pass

    async def hints(self) -> AsyncGenerator[UUID | None, None]:
        """Yield conversations that were just given something to do; None: look at the whole agenda."""
        channels = [f"{AGENDA} {self._kind}", *([WAKE] if self._kind == "turn" else [])]
        async with aclosing(self._database.listen(channels)) as notifications:
            async for notification in notifications:
                if notification is None:
                    yield None
                elif notification.channel == WAKE:
                    yield _conversation(notification.payload)
                elif _is_soon(notification.payload):
                    yield None

    async def _claim(self, statement: LiteralString, limit: int) -> list[Claim]:
        token = uuid4()
        async with self._run(statement, limit=limit, token=token, lease=self._lease_s) as cursor:
            return [_claim(token, *row) async for row in cursor]

    @asynccontextmanager
    async def _run(self, statement: LiteralString, **values: object) -> AsyncIterator[AsyncCursor]:
        try:
            async with self._database.connection(ANSWER_S) as connection, connection.cursor() as cursor:
                await cursor.execute(statement, {"kind": self._kind, **values})
                yield cursor
        except (DatabaseUnavailable, psycopg.Error) as error:  # a deadlock, say: no claim, no harm
            raise AgendaUnavailable(str(error)) from error


class PostgresWaker:
    """Wakes the workers of every process by NOTIFY."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def wake(self, conversation_id: UUID) -> None:
        """Notify; a hint that is lost costs time, nothing else."""
        try:
            async with asyncio.timeout(HINT_S), self._database.connection() as connection:
                await connection.execute("select pg_notify(%s, %s)", (WAKE, str(conversation_id)))
        except (DatabaseUnavailable, psycopg.Error, TimeoutError) as error:
            logger.info("nobody was woken: %s", error, extra={"action": "wake_lost"})


def _claim(token: UUID, conversation_id: UUID, strikes: int, seq: int) -> Claim:
    return Claim(conversation_id, token, takeover=strikes > 0, strikes=strikes, seq=seq)


def _is_soon(payload: str) -> bool:
    """Say whether somebody should look for an announced time; by a wrong clock it is noticed at the next look."""
    try:
        return float(payload) < time.time() + SOON_S
    except ValueError:
        return True


def _conversation(payload: str) -> UUID | None:
    """Return whom a hint is about; others may use the channel too."""
    try:
        return UUID(payload)
    except ValueError:
        return None
