"""The making of new rows, slice by slice: folded from the beginning and copied, each slice in one transaction."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import psycopg

from projections.advance import skip
from projections.parking import Sieve, is_poison, park
from projections.rebuild.folding import FoldError, Folding
from projections.rebuild.jobs import finish_slice
from projections.span import Span

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from psycopg import AsyncConnection

    from projections.advance import Led
    from projections.event import Event
    from projections.ports import Connections
    from projections.projection import Row
    from projections.rebuild.folding import Made
    from projections.rebuild.jobs import Job
    from projections.rebuild.ordered_log import OrderedLog, Slice

COPY_ROWS = 4_000
"""So many rows are gathered before they are copied."""
ATTEMPTS = 2
"""How often a slice is folded before what it has is parked."""


class _Refused(Exception):
    """Some row of a projection cannot be copied."""

    def __init__(self, led: Led) -> None:
        super().__init__(led.projection.name)
        self.led = led


async def fold_slice(
    database: Connections, job: Job, leds: Sequence[Led], log: OrderedLog, number: int, piece: Slice, upto: int
) -> None:
    """Make the rows of a slice in the shadow; a projection that refuses something is put off. Raises `RebuildLost`."""
    late: set[str] = set()
    while True:
        try:
            async with database.connection() as connection, job.shadow.entered(connection):
                in_time = [led for led in leds if led.projection.name not in late]
                folding = await _fold(connection, in_time, log, piece, upto)
                await skip(connection, [led.projection.name for led in leds], folding.skipped)
                await finish_slice(connection, job, number, sorted(late))
                return
        except _Refused as refused:
            if not refused.led.table.be_lenient():
                late.add(refused.led.projection.name)
        except FoldError as refused:
            late.add(refused.name)


async def fold_late(connection: AsyncConnection, led: Led, log: OrderedLog, piece: Slice, upto: int) -> None:
    """Fold a slice as live projection does, into tables that have their indexes, and park what cannot be folded."""
    sieve = Sieve(connection, led)
    opened: dict[UUID, Sequence[Row]] = {}
    last: dict[UUID, Event] = {}
    async with aclosing(log.read(piece, upto)) as pages:
        async for page in pages:
            conversations = Span(0, 0, page).events_for(led.projection)
            last |= {one: events[-1] for one, events in conversations.items()}
            possible = {one: events for one, events in conversations.items() if one not in sieve.refused}
            opened = await sieve.fold(opened, possible) if possible else {}
    for conversation_id, refused in sieve.refused.items():
        await park(connection, led, refused, last[conversation_id], ATTEMPTS)


async def _fold(connection: AsyncConnection, leds: Sequence[Led], log: OrderedLog, piece: Slice, upto: int) -> Folding:
    folding = Folding([led.projection for led in leds])
    async with aclosing(log.read(piece, upto)) as pages:
        async for page in pages:
            folding.take(page)
            if folding.rows >= COPY_ROWS:
                await _copy(connection, leds, folding.take_made())
    folding.finish()
    await _copy(connection, leds, folding.take_made())
    return folding


async def _copy(connection: AsyncConnection, leds: Sequence[Led], made: Sequence[Made]) -> None:
    for led, new in zip(leds, made, strict=True):
        try:
            if new.void:
                await led.table.remove(connection, new.void)
            if new.rows:
                await led.table.copy(connection, new.rows)
        except Exception as error:
            if not _is_of_rows(error):
                raise
            raise _Refused(led) from error


def _is_of_rows(error: Exception) -> bool:
    """Whether it is a row that cannot be copied, and not the database that cannot work."""
    return is_poison(error) if isinstance(error, psycopg.Error) else not isinstance(error, (OSError, MemoryError))
