"""Poison events: what a projection cannot fold is found and parked with its conversation, in order; others flow."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from projections.advance import Unfoldable, by_conversation, finish, fold, move
from projections.reasons import reason_of, said_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from psycopg import AsyncConnection

    from projections.advance import Led
    from projections.event import Event
    from projections.projection import Row
    from projections.span import Span

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

POISON = ("0A", "21", "22", "23", "38", "39", "44", "54", "P0")
"""Classes of SQLSTATE by which a database refuses a row; by any other it refuses to work, and no event is to blame."""
REFUSED_UNSENT = (psycopg.DataError, psycopg.NotSupportedError, psycopg.ProgrammingError)

# what a column's own constraint could put off to the end of the transaction is to show where it can be told apart
AT_ONCE = "set constraints all immediate"
PARK = """
insert into parked (
    projection, conversation_id, seq, position, event_id, type, last_seq, last_position, error, attempts
) values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


def is_poison(error: Exception) -> bool:
    """Whether events are to blame for what went wrong while they were folded and written."""
    if isinstance(error, psycopg.Error):
        return error.sqlstate[:2] in POISON if error.sqlstate else isinstance(error, REFUSED_UNSENT)
    return isinstance(error, Unfoldable)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The first event of a conversation that could not be folded, and why."""

    event: Event
    reason: str


class Sieve:
    """Folds all that can be folded, inside a transaction; who is to blame for a failure is found by halving."""

    def __init__(self, connection: AsyncConnection, led: Led) -> None:
        self._connection, self._led = connection, led
        self.refused: dict[UUID, Refusal] = {}
        self.written: set[tuple[Any, ...]] = set()
        """The keys of the rows that were put and not removed again, with the conversation."""

    async def fold(
        self, opened: Mapping[UUID, Sequence[Row]], conversations: Mapping[UUID, Sequence[Event]]
    ) -> dict[UUID, Sequence[Row]]:
        """Fold each conversation up to its first refused event; return their open rows as they are then."""
        try:
            return await self._try(opened, conversations)
        except Exception as error:
            if not is_poison(error):
                raise
            failed = error
        if len(conversations) > 1:
            ids = list(conversations)
            halves = [{one: conversations[one] for one in half} for half in _halves(ids)]
            return await self.fold(opened, halves[0]) | await self.fold(opened, halves[1])
        [(conversation_id, events)] = conversations.items()
        rows = opened.get(conversation_id, ())
        if len(events) == 1:
            self.refused[conversation_id] = Refusal(events[0], reason_of(failed, said_in(events, rows)))
            return {conversation_id: rows}
        first, second = _halves(events)
        opened = await self.fold(opened, {conversation_id: first})
        return opened if conversation_id in self.refused else await self.fold(opened, {conversation_id: second})

    async def _try(
        self, opened: Mapping[UUID, Sequence[Row]], conversations: Mapping[UUID, Sequence[Event]]
    ) -> dict[UUID, Sequence[Row]]:
        async with self._connection.transaction():
            done = await fold(self._connection, self._led, opened, conversations)
        self.written.difference_update(done.removed)
        self.written.update(tuple(row[column] for column in self._led.table.key) for row in done.put)
        return {conversation_id: list(rows) for conversation_id, rows in done.rows.items()}


async def advance_but_poison(connection: AsyncConnection, led: Led, span: Span, attempts: int) -> None:
    """Fold a span as `advance` does, and park the conversations of which that is impossible, from there on.

    Raises `NotLeading`, and whatever is nobody's fault.
    """
    async with connection.transaction():
        await connection.execute(AT_ONCE)
        conversations = await move(connection, led, span)
        cursor = await led.table.start_loading(connection, list(conversations))
        sieve = Sieve(connection, led)
        await sieve.fold(by_conversation(await led.table.loaded(cursor)), conversations)
        for conversation_id, refused in sieve.refused.items():
            await park(connection, led, refused, conversations[conversation_id][-1], attempts)
        await finish(connection, [led], span)
    for conversation_id, refused in sieve.refused.items():
        logger.warning(
            "%s parked conversation %s at event %d: %s",
            led.projection.name,
            conversation_id,
            refused.event.seq,
            refused.reason,
            extra={"action": "conversation_parked"},
        )


async def park(connection: AsyncConnection, led: Led, refused: Refusal, last: Event, attempts: int) -> None:
    """Remember where a conversation's waiting events begin, and that `last` is the last of them so far."""
    event = refused.event
    values = (event.seq, event.position, event.event_id, event.type, last.seq, last.position, refused.reason, attempts)
    await connection.execute(PARK, (led.projection.name, event.conversation_id, *values))


def _halves(items: Sequence[Item]) -> tuple[Sequence[Item], Sequence[Item]]:
    middle = len(items) // 2
    return items[:middle], items[middle:]
