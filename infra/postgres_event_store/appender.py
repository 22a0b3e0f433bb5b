"""The lane of appends: what arrives while one group is being committed forms the next, in one call each."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from domain.event_store import Appended, StoreError, StreamDeleted, StreamMoved
from infra.postgres_event_store.connection import fetch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import LiteralString

    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from domain.event_store import NewEvent
    from infra.database import Database
    from infra.postgres_event_store.connection import Patience

logger = logging.getLogger(__name__)

GROUP_EVENTS = 512
GROUP_BYTES = 4 * 1024 * 1024
CLOSING_SECONDS = 2.0
"""How long closing waits for appends that were already asked for."""

# What is not known to the server is not set: transaction_timeout came with PostgreSQL 17.
SETTINGS: LiteralString = """
    select set_config(name, wanted, false) from pg_settings join (values
        ('lock_timeout', '2s'), ('transaction_timeout', '10s'), ('default_transaction_isolation', 'read committed')
    ) as w (which, wanted) on which = name
"""
# Binary parameters (%b) make a group three times as fast; json goes as text, or psycopg would encode it once more.
APPEND: LiteralString = """
    select status, seq, position from log.append(
        %b::text[], %b::bigint[], %b::integer[], %b::integer[], %b::uuid[], %b::text[],
        %b::text[]::json[], %b::text[]::json[])
"""
MOVED, DELETED = 0, 3


class _Append(NamedTuple):
    stream: str
    events: Sequence[NewEvent]
    expected: int
    size: int
    receipt: asyncio.Future[Appended]


class AppendLane:
    """One connection that commits groups, one after the other. An append may be cancelled; its group goes on."""

    def __init__(self, database: Database, patience: Patience) -> None:
        self._database, self._patience = database, patience
        self._waiting: deque[_Append] = deque()
        self._arrived = asyncio.Event()
        self._closing = False
        self._connection: AsyncConnection | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect and start; `StoreError` if the database stays out of reach."""
        self._connection = await self._patience.insist(self._connect)
        self._task = asyncio.create_task(self._run(), name="append lane")

    def append(self, stream: str, events: Sequence[NewEvent], expected: int, size: int) -> asyncio.Future[Appended]:
        """Join the next group; the receipt is there, or the port's error, once its commit is durable.

        `size` is the events' in bytes: a group is bounded by it.
        """
        if self._closing or self._task is None:
            raise StoreError("the event store is closed")
        receipt: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Append(stream, events, expected, size, receipt))
        self._arrived.set()
        return receipt

    async def close(self) -> None:
        """Let what was asked for be committed, for `CLOSING_SECONDS`; the rest fails with `StoreError`."""
        self._closing = True
        self._arrived.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=CLOSING_SECONDS)
            self._task.cancel()
            await asyncio.wait({self._task})
        _fail(self._waiting, "the event store was closed")
        if self._connection is not None:
            await self._connection.close()

    async def _connect(self) -> AsyncConnection:
        connection = await self._database.connect()
        try:
            await fetch(connection, self._patience.seconds / 3, SETTINGS)
        except BaseException:  # a cancellation too: nobody else could close it
            await connection.close()
            raise
        return connection

    async def _run(self) -> None:
        while True:
            while not (group := self._next_group()):
                if self._closing:
                    return
                self._arrived.clear()
                await self._arrived.wait()
            try:
                await self._commit(group)
            except Exception:  # nothing that we know of; but the lane must go on, and nobody may be left waiting
                logger.exception("a group of appends broke", extra={"action": "append_broken"})
            finally:
                _fail(group, "the outcome of an append was not learned: the store was closed, or broke")

    def _next_group(self) -> list[_Append]:
        group: list[_Append] = []
        events = size = 0
        while self._waiting and events < GROUP_EVENTS and size < GROUP_BYTES:
            append = self._waiting.popleft()
            if not append.receipt.done():  # else its caller has gone before it was sent
                group.append(append)
                events += len(append.events)
                size += append.size
        return group

    async def _commit(self, group: list[_Append]) -> None:
        """Settle every append of the group. An unknown outcome is settled by sending the very same group again."""
        arguments = _arguments(group)

        async def attempt() -> list[TupleRow]:
            if self._connection is None or self._connection.closed:
                self._connection = await self._connect()
            return await fetch(self._connection, self._patience.seconds / 3, APPEND, arguments)

        try:
            verdicts = await self._patience.insist(attempt)
        except ValueError as error:
            if len(group) > 1:  # one of them is poison: it shall fail alone
                await self._commit(group[: len(group) // 2])
                await self._commit(group[len(group) // 2 :])
            elif not group[0].receipt.done():
                group[0].receipt.set_exception(error)
        except StoreError as error:
            _fail(group, str(error))
            _fail(self._waiting, str(error))  # they have waited as long: no second patience for them
        else:
            for append, verdict in zip(group, verdicts, strict=True):
                _settle(append, *verdict)


def _arguments(group: list[_Append]) -> list[Sequence[object]]:
    events = [event for append in group for event in append.events]
    counts = [len(append.events) for append in group]
    return [
        [append.stream for append in group],
        _array(append.expected for append in group),
        _array(accumulate(counts[:-1], initial=1)),
        _array(counts),
        [event.event_id for event in events],
        [event.type for event in events],
        [event.data for event in events],
        [event.metadata for event in events],
    ]


def _array(numbers: Iterable[int]) -> str:
    # psycopg would convert one number after the other, in Python
    return "{" + ",".join(map(str, numbers)) + "}"


def _settle(append: _Append, status: int, seq: int, position: int) -> None:
    if append.receipt.done():
        return
    if status == MOVED:
        append.receipt.set_exception(StreamMoved(append.stream, append.expected, seq))
    elif status == DELETED:
        append.receipt.set_exception(StreamDeleted(append.stream))
    else:
        append.receipt.set_result(Appended(seq, position))


def _fail(appends: Iterable[_Append], reason: str) -> None:
    for append in appends:
        if not append.receipt.done():
            append.receipt.set_exception(StoreError(reason))
