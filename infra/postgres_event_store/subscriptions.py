"""The one reader of live events of a process: it listens for commits and fans out what it reads."""

from __future__ import annotations

import asyncio
import logging
import random
from contextvars import Context
from typing import TYPE_CHECKING, NoReturn

import psycopg

from domain.event_store import StoredEvent, StoreError
from infra.database import DatabaseUnavailable, first_line
from infra.hanging_up import hung_up_after
from infra.postgres_event_store.connection import fetch

if TYPE_CHECKING:
    from typing import LiteralString

    from psycopg import AsyncConnection

    from infra.database import Database
    from infra.fan_out import FanOut
    from infra.postgres_event_store.connection import Patience

logger = logging.getLogger(__name__)

PAGE_EVENTS = 1_000
RECONNECT_SECONDS = 0.2
SAFETY_POLL_SECONDS = 1.0
"""A quiet log is read this often, should a notification have been lost."""
ANSWER_SECONDS = 3.0
"""Who has not delivered a page by then is taken for dead; should it only have been slow, the next page is smaller."""

HEAD: LiteralString = "select coalesce(max(position), 0) from log.events"
READ_ALL: LiteralString = """
    select stream, seq, position, event_id, type, data::text, metadata::text from log.events
    where position > %b::bigint order by position limit %b::bigint
"""


class LiveReader:
    """Reads the log once for all subscribers of the process, from the first subscription on."""

    def __init__(self, database: Database, fan_out: FanOut, patience: Patience) -> None:
        self._database, self._fan_out, self._patience = database, fan_out, patience
        self._position: int | None = None
        self._page_events = PAGE_EVENTS
        self._listening = asyncio.Event()
        self._task: asyncio.Task[NoReturn] | None = None

    async def started(self) -> None:
        """Return when everything committed from now on will be fanned out; `StoreError` if that takes too long."""
        if self._task is None:
            # in a context of its own: what it logs is not about the conversation of the first subscriber
            self._task = asyncio.create_task(self._run(), name="live reader of the log", context=Context())
        if not self._listening.is_set():
            try:
                async with asyncio.timeout(self._patience.seconds):
                    await self._listening.wait()
            except TimeoutError as error:
                raise StoreError("the log's database is out of reach: cannot listen to it") from error

    async def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> NoReturn:
        while True:
            try:
                async with await self._database.connect() as connection:
                    await self._listen(connection)
            except (psycopg.Error, OSError, DatabaseUnavailable) as error:
                self._page_events = max(self._page_events // 8, 1)
                self._patience.note(away=True)
                logger.warning("lost the log's live events: %s", first_line(error), extra={"action": "listen_lost"})
            except Exception:  # nothing that we know of; but subscribers must not be left waiting for ever
                logger.exception("reading the log's live events broke", extra={"action": "listen_broken"})
            await asyncio.sleep(random.uniform(0.5, 1) * RECONNECT_SECONDS)

    async def _listen(self, connection: AsyncConnection) -> NoReturn:
        with hung_up_after(connection, ANSWER_SECONDS):
            await connection.execute("listen log_events")
        if self._position is None:
            [(self._position,)] = await fetch(connection, self._patience.seconds, HEAD)
        self._listening.set()
        while True:  # after a reconnect too the first thing is to read: nobody notified us meanwhile
            self._position, caught_up = await self._read_on(connection, self._position)
            if caught_up:
                await _notified(connection)

    async def _read_on(self, connection: AsyncConnection, position: int) -> tuple[int, bool]:
        rows = await fetch(connection, ANSWER_SECONDS, READ_ALL, (position, self._page_events))
        self._patience.note(away=False)
        caught_up, self._page_events = len(rows) < self._page_events, PAGE_EVENTS
        if rows:
            events = tuple(StoredEvent(*row) for row in rows)
            position = events[-1].position
            self._fan_out.deliver(events, position, caught_up=caught_up)
        return position, caught_up


async def _notified(connection: AsyncConnection) -> None:
    # A notification can come in with the answer of the last query: then the socket stays silent about it.
    if not connection.pgconn.notifies():
        async for _ in connection.notifies(timeout=SAFETY_POLL_SECONDS, stop_after=1):
            pass
