"""The one transaction of live projection: rows and checkpoints move together, or not at all."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from projections.projection import Rows
from projections.reasons import SaidAlready, reason_of, said_in
from projections.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from psycopg import AsyncConnection, AsyncCursor

    from projections.event import Event
    from projections.projection import Projection, Row
    from projections.span import Span

# a commit that waits for no disk: what a crash takes away it takes whole, checkpoint included, and it is folded again
MOVE = """
with quick as materialized (select set_config('synchronous_commit', 'off', true))
update projections set position = %(position)s, updated_at = clock_timestamp(), error = null,
    status = case status when 'failing' then 'running' else status end
from quick, unnest(%(names)s::text[], %(versions)s::int[], %(epochs)s::bigint[]) as led (name, version, epoch)
where projections.name = led.name and projections.version = led.version and projections.epoch = led.epoch
    and projections.position = %(after)s and projections.status <> 'paused'
returning projections.name
"""
# What is parked waits longer. Who folds a conversation again holds its row, so this waits for the outcome.
WAIT_LONGER = """
update parked set last_seq = news.seq, last_position = news.position
from unnest(%(ids)s::uuid[], %(seqs)s::int[], %(positions)s::bigint[]) as news (id, seq, position)
where parked.projection = any(%(names)s) and parked.conversation_id = news.id
returning parked.projection, parked.conversation_id
"""
SKIP = """
insert into skipped (projection, conversation_id, type, seq, position, event_id)
select led.name, event.* from unnest(%(names)s::text[]) as led (name),
    unnest(%(ids)s::uuid[], %(types)s::text[], %(seqs)s::int[], %(positions)s::bigint[], %(event_ids)s::uuid[]) as event
on conflict do nothing
"""
FORGET = ("delete from parked", "delete from skipped")
ANNOUNCE = "select pg_notify('projected', %s)"


class NotLeading(Exception):
    """Another process leads the projection, has moved its checkpoint or paused it; nothing was written."""


class Unfoldable(SaidAlready):
    """A fold raised, or made rows that are none; the message repeats nothing of the events."""


class Folded(NamedTuple):
    """Open rows by conversation, and what was written: rows that were put, keys of those that were removed."""

    rows: dict[UUID, Rows]
    put: list[Row]
    removed: list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Led:
    """A projection that this process leads under an epoch."""

    projection: Projection
    epoch: int
    table: Table = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", Table(self.projection))


async def advance(connection: AsyncConnection, leds: Sequence[Led], span: Span) -> None:
    """Fold a span into projections whose checkpoint is at its beginning; what is parked waits longer.

    Raises `NotLeading` if a checkpoint is elsewhere, `Unfoldable`, and what the database refuses.
    """
    async with connection.pipeline() as pipeline, connection.transaction():
        moved = await connection.execute(MOVE, _move(leds, span))
        waiting = [await wait_longer(connection, group, span) for group in _by_streams(leds)]
        loading = [await led.table.start_loading(connection, list(span.events_for(led.projection))) for led in leds]
        await pipeline.sync()  # only then does the server count how long a process that is stopped here is idle
        if len(await moved.fetchall()) != len(leds):
            raise NotLeading("another process has moved a checkpoint, or it was paused")
        parked = await _parked(waiting)
        for led, cursor in zip(leds, loading, strict=True):
            opened = by_conversation(await led.table.loaded(cursor))
            await fold(connection, led, opened, _but(span.events_for(led.projection), parked[led.projection.name]))
        await finish(connection, leds, span)


async def move(connection: AsyncConnection, led: Led, span: Span) -> dict[UUID, Sequence[Event]]:
    """Move one checkpoint as `advance` does, and return what is to be folded. Raises `NotLeading`."""
    if not await (await connection.execute(MOVE, _move([led], span))).fetchall():
        raise NotLeading("another process has moved the checkpoint, or it was paused")
    parked = await _parked([await wait_longer(connection, [led], span)])
    return _but(span.events_for(led.projection), parked[led.projection.name])


async def fold(
    connection: AsyncConnection,
    led: Led,
    opened: Mapping[UUID, Sequence[Row]],
    conversations: Mapping[UUID, Sequence[Event]],
) -> Folded:
    """Fold events into the open rows of their conversations, and write what changed.

    Raises `Unfoldable`, and what the database refuses.
    """
    done = Folded({}, [], [])
    for conversation_id, events in conversations.items():
        before = opened.get(conversation_id, ())
        rows = done.rows[conversation_id] = Rows(led.projection, conversation_id, before)
        with _blaming(events, before):
            led.projection.fold(rows, events)
        for key, changed in rows.take_changes().items():
            if changed is None:
                done.removed.append((conversation_id, *key))
            else:
                done.put.append(changed)
    with _blaming(chain.from_iterable(conversations.values()), done.put):
        if done.removed:
            await led.table.remove(connection, done.removed)
        if done.put:
            await led.table.upsert(connection, done.put)
        if led.projection.announce and done.put:
            await connection.execute(led.projection.announce, {"conversations": list(conversations)})
    return done


@contextmanager
def _blaming(events: Iterable[Event], rows: Sequence[Row]) -> Iterator[None]:
    try:
        yield
    except (psycopg.Error, MemoryError):
        raise
    except Exception as error:
        raise Unfoldable(reason_of(error, said_in(events, rows))) from error


async def finish(connection: AsyncConnection, leds: Sequence[Led], span: Span) -> None:
    """Forget deleted conversations, remember what was skipped, and announce the new position."""
    names = [led.projection.name for led in leds]
    if span.deleted:
        for led in leds:
            await led.table.forget(connection, span.deleted)
        for statement in FORGET:
            await connection.execute(
                f"{statement} where projection = any(%s) and conversation_id = any(%s)", [names, span.deleted]
            )
    await skip(connection, names, span.skipped)
    await connection.execute(ANNOUNCE, [f"{span.position} {' '.join(names)}"])


async def skip(connection: AsyncConnection, names: Sequence[str], events: Sequence[Event]) -> None:
    """Remember events of unknown types that projections have folded their conversations without."""
    if events:
        await connection.execute(
            SKIP,
            {
                "names": names,
                "ids": [event.conversation_id for event in events],
                "types": [event.type for event in events],
                "seqs": [event.seq for event in events],
                "positions": [event.position for event in events],
                "event_ids": [event.event_id for event in events],
            },
        )


async def wait_longer(connection: AsyncConnection, leds: Sequence[Led], span: Span) -> AsyncCursor:
    """Note for parked conversations that more waits, for projections of the same streams.

    The cursor has their projections and ids.
    """
    conversations = span.events_for(leds[0].projection)
    newest = [events[-1] for events in conversations.values()]
    return await connection.execute(
        WAIT_LONGER,
        {
            "names": [led.projection.name for led in leds],
            "ids": list(conversations),
            "seqs": [event.seq for event in newest],
            "positions": [event.position for event in newest],
        },
    )


def by_conversation(rows: Iterable[Row]) -> dict[UUID, list[Row]]:
    """Sort rows by their conversation."""
    sorted_rows: dict[UUID, list[Row]] = {}
    for row in rows:
        sorted_rows.setdefault(row["conversation_id"], []).append(row)
    return sorted_rows


def _move(leds: Sequence[Led], span: Span) -> dict[str, object]:
    return {
        "position": span.position,
        "after": span.after,
        "names": [led.projection.name for led in leds],
        "versions": [led.projection.version for led in leds],
        "epochs": [led.epoch for led in leds],
    }


def _by_streams(leds: Sequence[Led]) -> list[list[Led]]:
    groups: dict[str, list[Led]] = defaultdict(list)
    for led in leds:
        groups[led.projection.streams].append(led)
    return list(groups.values())


async def _parked(waiting: Sequence[AsyncCursor]) -> dict[str, set[UUID]]:
    parked: dict[str, set[UUID]] = defaultdict(set)
    for cursor in waiting:
        for name, conversation_id in await cursor.fetchall():
            parked[name].add(conversation_id)
    return parked


def _but(conversations: Mapping[UUID, Sequence[Event]], parked: set[UUID]) -> dict[UUID, Sequence[Event]]:
    return {one: events for one, events in conversations.items() if one not in parked}
