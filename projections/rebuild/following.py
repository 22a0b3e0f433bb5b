"""The way of new tables from the position where the log was cut to where the live ones are, and into their place."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, LiteralString, NamedTuple

from psycopg import sql

from domain.wire import PREFIXES
from projections.advance import ANNOUNCE, Led, advance
from projections.feed import SPAN_EVENTS
from projections.parking import advance_but_poison, is_poison
from projections.rebuild.jobs import remove
from projections.rebuild.shadow import TO_OTHERS
from projections.rebuild.slices import ATTEMPTS
from projections.span import Span
from projections.versions import ProjectionMismatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from psycopg import AsyncConnection

    from domain.event_store import EventStore
    from projections.rebuild.jobs import Job

MOST_AT_LAST = 1_000
"""While the live tables wait, at most so many events are folded."""

POSITIONS: LiteralString = "select name, position from {} where name = any(%s)"
LIVE: LiteralString = "select name, version, position from {} where name = any(%s) order by name for update"
# who is stopped while he holds these locks must not hold them for long
IMPATIENT: LiteralString = """
select set_config('lock_timeout', %s, true), set_config('idle_in_transaction_session_timeout', '5s', true)
"""
CHECKPOINTS: LiteralString = """
update {live} as live set version = made.version, generation = live.generation + 1, position = made.position,
    status = case live.status when 'paused' then live.status else 'running' end, error = null,
    epoch = live.epoch + case when live.version < made.version then 1 else 0 end, updated_at = clock_timestamp()
from {made} as made where live.name = made.name
returning live.name, live.position
"""
WAITING = ("parked", "skipped")
GRANTS: LiteralString = """
select format('grant %%s on table %%s to %%s%%s', privilege_type, %(made)s::regclass,
    case grantee when 0 then 'public' else grantee::regrole::text end,
    case when is_grantable then ' with grant option' else '' end)
from pg_class, aclexplode(relacl) where oid = %(live)s::regclass and grantee <> relowner
"""


class TooFar(Exception):
    """So much has happened meanwhile that the new tables must catch up once more before they take their place."""


class Stretch(NamedTuple):
    """Projections that stand at one position, and how far they are to go."""

    leds: tuple[Led, ...]
    position: int
    target: int


async def catch_up(connection: AsyncConnection, job: Job, leds: Sequence[Led], store: EventStore) -> int:
    """Move the shadow's tables to where the live ones are; return how many events that were. Raises `RebuildLost`."""
    count = 0
    targets = await _positions(connection, sql.Identifier("projections"), leds)
    async with job.shadow.entered(connection):
        stretches = await _stretches(connection, leds, targets)
    for leds_there, position, target in stretches:
        while position < target:
            async with job.shadow.entered(connection):
                await job.hold(connection)
                position, events = await _step(connection, leds_there, store, position, target)
                count += events
    return count


async def swap(connection: AsyncConnection, job: Job, leds: Sequence[Led], store: EventStore, patience_ms: int) -> None:
    """Put the new tables into the place of the live ones, in one transaction, and leave no trace of the rebuild.

    Raises `TooFar`, psycopg's `LockNotAvailable` or `QueryCanceled` when others hold a table for longer than the
    patience (they wait as long), `RebuildLost`, `ProjectionMismatch`.
    """
    names = [led.projection.name for led in leds]
    live = sql.Identifier(job.shadow.live, "projections")
    async with job.shadow.entered(connection):
        await connection.execute(IMPATIENT, [f"{patience_ms}ms"])
        await job.hold(connection)
        found = await (await connection.execute(sql.SQL(LIVE).format(live), [names])).fetchall()
        _refuse_newer(leds, {name: version for name, version, _ in found})
        targets = {name: position for name, _, position in found}
        await _finish(connection, leds, store, targets)
        for table in WAITING:
            await _replace_rows(connection, job, table, names)
        tables = sql.SQL(", ").join(sql.Identifier(job.shadow.live, name) for name in names)
        await connection.execute("select set_config('statement_timeout', %s, true)", [f"{patience_ms}ms"])
        await connection.execute(sql.SQL("lock table {} in access exclusive mode").format(tables))
        await connection.execute("set local statement_timeout = 0")
        for led in leds:
            await _replace(connection, job, led)
        made = sql.Identifier(job.shadow.schema, "projections")
        moved = await connection.execute(sql.SQL(CHECKPOINTS).format(live=live, made=made))
        for name, position in await moved.fetchall():
            await connection.execute(ANNOUNCE, [f"{position} {name}"])
        await remove(connection, job.shadow, job.id)


async def _finish(
    connection: AsyncConnection, leds: Sequence[Led], store: EventStore, targets: Mapping[str, int]
) -> None:
    count = 0
    for leds_there, position, target in await _stretches(connection, leds, targets):
        while position < target:
            position, events = await _step(connection, leds_there, store, position, target)
            count += events
            if count > MOST_AT_LAST:
                raise TooFar


async def _step(
    connection: AsyncConnection, leds: tuple[Led, ...], store: EventStore, position: int, target: int
) -> tuple[int, int]:
    """Fold a span; return the position after it and its number of events."""
    stored = await store.read_all(position, limit=SPAN_EVENTS, prefixes=PREFIXES)
    reached = stored[-1].position if len(stored) == SPAN_EVENTS else target
    events = [event for event in stored if event.position <= target]
    span = Span(position, min(reached, target), events)
    try:
        async with connection.transaction():
            await advance(connection, leds, span)
    except Exception as error:
        if not is_poison(error):
            raise
        for led in leds:
            await advance_but_poison(connection, led, span, ATTEMPTS)
    return span.position, len(events)


async def _stretches(connection: AsyncConnection, leds: Sequence[Led], targets: Mapping[str, int]) -> list[Stretch]:
    """Say who goes from where to where, those together who go the same way. Names mean the shadow's tables."""
    positions = await _positions(connection, sql.Identifier("projections"), leds)

    def way(led: Led) -> tuple[int, int]:
        return positions[led.projection.name], targets.get(led.projection.name, 0)

    return [Stretch(tuple(group), *ends) for ends, group in groupby(sorted(leds, key=way), way)]


async def _positions(connection: AsyncConnection, table: sql.Composable, leds: Sequence[Led]) -> dict[str, int]:
    names = [led.projection.name for led in leds]
    return dict(await (await connection.execute(sql.SQL(POSITIONS).format(table), [names])).fetchall())


def _refuse_newer(leds: Sequence[Led], versions: Mapping[str, int]) -> None:
    for led in leds:
        if versions.get(led.projection.name, 0) > led.projection.version:
            raise ProjectionMismatch(f"{led.projection.name} was rebuilt by a newer Rejoinder meanwhile")


async def _replace_rows(connection: AsyncConnection, job: Job, table: str, names: list[str]) -> None:
    live, made = sql.Identifier(job.shadow.live, table), sql.Identifier(job.shadow.schema, table)
    await connection.execute(sql.SQL("delete from {} where projection = any(%s)").format(live), [names])
    await connection.execute(sql.SQL("insert into {} select * from {}").format(live, made))


async def _replace(connection: AsyncConnection, job: Job, led: Led) -> None:
    """Drop the live table and move the new one into its place, with what is not of the log and who may read it."""
    name = led.projection.name
    live, made = sql.Identifier(job.shadow.live, name), sql.Identifier(job.shadow.schema, name)
    values = {"live": live.as_string(connection), "made": made.as_string(connection)}
    for (grant,) in await (await connection.execute(GRANTS, values)).fetchall():
        await connection.execute(sql.SQL(grant))
    await connection.execute(f"alter table {name} reset ({TO_OTHERS})")
    former = f"{name}_former"
    await connection.execute(sql.SQL("alter table {} rename to {}").format(live, sql.Identifier(former)))
    if led.projection.carry_over:
        await connection.execute(led.projection.carry_over)
    await connection.execute(sql.SQL("drop table {}").format(sql.Identifier(job.shadow.live, former)))
    await connection.execute(sql.SQL("alter table {} set schema {}").format(made, sql.Identifier(job.shadow.live)))
