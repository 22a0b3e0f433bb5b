"""The one transaction of live projection: rows and checkpoints move together, or not at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from projections.projection import Rows
from projections.tables import Table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from psycopg import AsyncConnection

    from projections.projection import Projection, Row
    from projections.span import Span

TAKE_OVER = """
update projections set epoch = %(epoch)s, status = case status when 'new' then 'running' else status end
where name = %(name)s and version = %(version)s and epoch <= %(epoch)s returning position
"""
# a commit that waits for no disk: what a crash takes away it takes whole, checkpoint included, and it is folded again
MOVE = """
with quick as materialized (select set_config('synchronous_commit', 'off', true))
update projections set position = %(position)s, updated_at = clock_timestamp(), error = null,
    status = case status when 'failing' then 'running' else status end,
    skipped_position = coalesce(skipped_position, %(skipped)s)
from quick, unnest(%(names)s::text[], %(epochs)s::bigint[]) as led (name, epoch)
where projections.name = led.name and projections.epoch = led.epoch and projections.position = %(after)s
returning projections.name
"""
ANNOUNCE = "select pg_notify('projected', %s)"


class NotLeading(Exception):
    """Another process leads the projection, or has moved its checkpoint; nothing was written."""


@dataclass(frozen=True, slots=True)
class Led:
    """A projection that this process leads under an epoch."""

    projection: Projection
    epoch: int
    table: Table = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", Table(self.projection))


async def take_over(connection: AsyncConnection, led: Led) -> int:
    """Refuse all former leaders from now on and return the checkpoint.

    Raises `NotLeading` for a newer leader or another version.
    """
    wanted = {"epoch": led.epoch, "name": led.projection.name, "version": led.projection.version}
    row = await (await connection.execute(TAKE_OVER, wanted)).fetchone()
    if row is None:
        raise NotLeading(f"{led.projection.name} is led by another process, or of another version")
    return int(row[0])


async def advance(connection: AsyncConnection, leds: Sequence[Led], span: Span) -> None:
    """Fold a span into projections whose checkpoint is at its beginning; raises `NotLeading` if one is not."""
    async with connection.pipeline(), connection.transaction():
        moved = await connection.execute(
            MOVE,
            {
                "position": span.position,
                "after": span.after,
                "skipped": span.skipped,
                "names": [led.projection.name for led in leds],
                "epochs": [led.epoch for led in leds],
            },
        )
        loading = [await led.table.start_loading(connection, list(span.conversations)) for led in leds]
        if len(await moved.fetchall()) != len(leds):
            raise NotLeading("another process has moved a checkpoint")
        for led, cursor in zip(leds, loading, strict=True):
            await _fold(connection, led, await led.table.loaded(cursor), span)
        await connection.execute(ANNOUNCE, [f"{span.position} {' '.join(led.projection.name for led in leds)}"])


async def _fold(connection: AsyncConnection, led: Led, loaded: Sequence[Row], span: Span) -> None:
    open_rows: dict[UUID, list[Row]] = {}
    for row in loaded:
        open_rows.setdefault(row["conversation_id"], []).append(row)
    put: list[Row] = []
    removed: list[tuple[object, ...]] = []
    for conversation_id, events in span.conversations.items():
        rows = Rows(led.projection, conversation_id, open_rows.get(conversation_id, ()))
        led.projection.fold(rows, events)
        for key, changed in rows.take_changes().items():
            if changed is None:
                removed.append((conversation_id, *key))
            else:
                put.append(changed)
    if removed:
        await led.table.remove(connection, removed)
    if put:
        await led.table.upsert(connection, put)
    if span.deleted:
        await led.table.forget(connection, span.deleted)
    if led.projection.announce and put:
        await connection.execute(led.projection.announce, {"conversations": list(span.conversations)})
