"""The audit of model calls in PostgreSQL: notes are taken at once and written beside the calls, a batch at a time."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, Self
from uuid import uuid4

import psycopg

from infra.audit_parts import Note, Prepared, prepared
from infra.audit_writing import write_begun, write_ended
from infra.database import DatabaseUnavailable, first_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from commands.agent.audit import CallAbout, TryEnded
    from commands.agent.model import ModelRequest
    from commands.ports import Clock
    from domain.hooks import Hook
    from infra.database import Database

logger = logging.getLogger(__name__)

MOST_WAITING = 2_000
"""Notes; what comes when so many wait for the database is not kept."""
AT_ONCE = 100
KEPT_WITHIN_S = 1.0
"""A reply waits no longer for the note of its request."""
TRIES = 3
"""Of what the database refuses (a deadlock, say); one that cannot be reached is waited for."""
PAUSE_S = 1.0
LAST_NOTES_S = 3.0


class PostgresAudit:
    """The port `Audit` of a process, from ``async with`` on, in one loop; `redacting` hooks change what is kept."""

    def __init__(self, database: Database, clock: Clock, redacting: Sequence[Hook] = ()) -> None:
        self._database, self._clock, self._redacting = database, clock, tuple(redacting)
        self._begun: list[Note] = []
        self._ended: list[tuple[UUID, TryEnded]] = []
        self._written: dict[UUID, asyncio.Event] = {}
        self._stirred = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="audit")
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), LAST_NOTES_S)
        self._task.cancel()
        await asyncio.wait({self._task})

    def begin(self, about: CallAbout, number: int, request: ModelRequest) -> UUID:
        """Note that a try begins; returns the id of the note."""
        call = uuid4()
        if len(self._begun) + len(self._ended) >= MOST_WAITING:
            logger.error("a model call is not in the audit: too many wait", extra={"action": "audit_lost"})
            return call
        self._written[call] = asyncio.Event()
        self._begun.append(Note(call, about, number, request, self._clock.now()))
        self._stir()
        return call

    def end(self, call: UUID, ended: TryEnded) -> None:
        """Note what became of it."""
        if self._written.pop(call, None) is not None:
            self._ended.append((call, ended))
            self._stir()

    async def kept(self, call: UUID) -> None:
        """Wait until its beginning is on disk, or for a second."""
        if (written := self._written.get(call)) is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(KEPT_WITHIN_S):
                    await written.wait()

    def _stir(self) -> None:
        self._idle.clear()
        self._stirred.set()

    async def _run(self) -> NoReturn:
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            while self._begun or self._ended:
                begun, self._begun = self._begun[:AT_ONCE], self._begun[AT_ONCE:]
                ended, self._ended = (self._ended, []) if not self._begun else ([], self._ended)
                await self._write([one for note in begun if (one := await self._prepared(note))], ended)
            self._idle.set()

    async def _prepared(self, note: Note) -> Prepared | None:
        try:
            return await prepared(note, self._redacting)
        except Exception:  # whatever a request is made of: the next ones are to be kept
            logger.exception("a model call is not in the audit", extra={"action": "audit_lost"})
            return None

    async def _write(self, begun: list[Prepared], ended: Sequence[tuple[UUID, TryEnded]]) -> None:
        """Write the notes of new tries, then of what became of tries, theirs too; what is refused again is lost."""
        refused = 0
        while begun or ended:
            try:
                async with self._database.connection() as connection:
                    while begun:
                        await write_begun(connection, begun[0])
                        if written := self._written.get(begun.pop(0).note.call):
                            written.set()
                    await write_ended(connection, ended)
                    return
            except DatabaseUnavailable as error:
                logger.warning("the audit waits for the database: %s", error, extra={"action": "audit_waits"})
            except psycopg.Error as error:
                refused += 1
                logger.warning("the audit was refused: %s", first_line(error), extra={"action": "audit_refused"})
                if refused == TRIES:
                    logger.error("a model call is not whole in the audit", extra={"action": "audit_lost"})
                    refused, begun, ended = 0, begun[1:], ended if begun else ()
            await asyncio.sleep(PAUSE_S)
