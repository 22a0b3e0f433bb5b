"""Live tokens on PostgreSQL: notifications for those who watch now, a row of the text so far for those who come."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NoReturn, Self

import psycopg

from commands.ports import NOTHING_SAID, Partial
from domain.text import clean
from infra.database import DatabaseUnavailable
from infra.hanging_up import hung_up_after
from infra.live_messages import CHANNEL, PIECE_CHARS, LiveMessage, spoken_in

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import LiteralString
    from uuid import UUID

    from psycopg import AsyncConnection

    from commands.agent.live import Kind, LiveAt
    from infra.database import Database
    from infra.live_messages import Try

logger = logging.getLogger(__name__)

COALESCE_S = 0.030
SAVE_S = 0.250
LONGEST_PAUSE_S = 2.0

ANSWER_WITHIN_S = 3.0
# Losing what was written last is fine; waiting for a server that does not answer is not.
SESSION: LiteralString = f"set synchronous_commit = off; set statement_timeout = '{ANSWER_WITHIN_S}s'"
# What the dead were saying nobody clears, unless their conversations speak again; a living one saves all the time.
FORGET: LiteralString = "delete from live_turns where updated_at < now() - interval '15 minutes'"
NOTIFY: LiteralString = f"select pg_notify('{CHANNEL}', said) from unnest(%s::text[]) as said"
SAVE: LiteralString = f"""
    with saved as (
        insert into live_turns (conversation_id, turn, step, attempt, try, index, text, thinking)
        select * from unnest(
            %s::uuid[], %s::int[], %s::int[], %s::int[], %s::int[], %s::int[], %s::text[], %s::text[])
        on conflict (conversation_id) do update set
            turn = excluded.turn, step = excluded.step, attempt = excluded.attempt, try = excluded.try,
            index = excluded.index, text = excluded.text, thinking = excluded.thinking, updated_at = now()
        where (live_turns.turn, live_turns.step, live_turns.attempt, live_turns.try)
            <= (excluded.turn, excluded.step, excluded.attempt, excluded.try)
    )
    select pg_notify('{CHANNEL}', saved) from unnest(%s::text[]) as saved
"""
CLEAR: LiteralString = """
    delete from live_turns
    using unnest(%s::uuid[], %s::int[], %s::int[], %s::int[], %s::int[]) as done (id, turn, step, attempt, try)
    where conversation_id = done.id
        and (live_turns.turn, live_turns.step, live_turns.attempt, live_turns.try)
            <= (done.turn, done.step, done.attempt, done.try)
"""
READ: LiteralString = "select turn, step, text from live_turns where conversation_id = %s"


@dataclass(slots=True)
class _Said:
    """What a try has said: `pending` was not sent yet, `index` counts what was, up to `saved` it is in the row."""

    at: LiveAt
    index: int = 0
    pending: list[tuple[Kind, str]] = field(default_factory=list)
    texts: dict[Kind, list[str]] = field(default_factory=lambda: {"text": [], "thinking": []})
    begun: bool = False
    saved: int = -1
    saved_at: float = 0.0

    def take(self) -> list[LiveMessage]:
        """Turn what is pending into messages."""
        messages = [] if self.begun else [self.message("text", "")]
        self.begun = True
        for kind, run in groupby(self.pending, key=itemgetter(0)):
            text = clean("".join(piece for _, piece in run))
            self.texts[kind].append(text)
            for start in range(0, len(text), PIECE_CHARS):
                self.index += 1
                messages.append(self.message(kind, text[start : start + PIECE_CHARS]))
        self.pending.clear()
        return messages

    def message(self, kind: Kind, text: str) -> LiveMessage:
        """Make a message of the present index."""
        return LiveMessage(self.at.conversation_id, spoken_in(self.at), self.index, kind, text)

    def whole_text(self) -> str:
        """Return the text so far, sent or not."""
        pending = "".join(clean(piece) for kind, piece in self.pending if kind == "text")
        return "".join(self.texts["text"]) + pending


class PostgresLiveTurns:
    """The `LiveTurns` of a process, from ``async with`` on, in one event loop; it holds one connection.

    Each conversation's deltas are coalesced for 30 ms, its row is written every 250 ms. Trouble with the database
    loses or delays what is live, and nothing else.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._said: dict[UUID, _Said] = {}
        self._done: dict[UUID, Try] = {}
        self._stirred = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="live tokens")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})

    def restart(self, at: LiveAt) -> None:
        """Begin a try with an empty text."""
        self._begin(at)

    def publish(self, at: LiveAt, kind: Kind, text: str) -> None:
        """Add a piece; a try that an older one publishes after is the newer one's."""
        said = self._said.get(at.conversation_id)
        if said is None or said.at < at:
            said = self._begin(at)
        if said.at == at and text:
            said.pending.append((kind, text))
            self._stirred.set()

    def clear(self, conversation_id: UUID) -> None:
        """Forget what this process has said for the conversation, and delete its row unless it is a later one's."""
        if said := self._said.pop(conversation_id, None):
            self._done[conversation_id] = spoken_in(said.at)
            self._stirred.set()

    async def partial(self, conversation_id: UUID) -> Partial:
        """Return what is said here right now, else what the row says; it may be a quarter of a second old."""
        if said := self._said.get(conversation_id):
            return Partial(said.at.turn, said.at.step, said.whole_text())
        try:
            async with self._database.connection() as connection:
                row = await (await connection.execute(READ, (conversation_id,))).fetchone()
        except (DatabaseUnavailable, psycopg.Error) as error:
            logger.warning("what was said live cannot be read: %s", error, extra={"action": "live_unreadable"})
            return NOTHING_SAID
        return Partial(*row) if row else NOTHING_SAID

    def _begin(self, at: LiveAt) -> _Said:
        said = self._said[at.conversation_id] = _Said(at)
        self._stirred.set()
        return said

    async def _run(self) -> NoReturn:
        pause = COALESCE_S
        while True:
            try:
                async with await self._database.connect() as connection:
                    with hung_up_after(connection, ANSWER_WITHIN_S):
                        await connection.execute(SESSION)
                    await connection.execute(FORGET)
                    pause = COALESCE_S
                    self._stirred.set()
                    while True:
                        await self._stirred.wait()
                        with hung_up_after(connection, 2 * ANSWER_WITHIN_S):
                            await self._flush(connection)
                        await asyncio.sleep(COALESCE_S)
            except (DatabaseUnavailable, psycopg.Error, OSError) as error:
                logger.warning("live tokens are not shown: %s", error, extra={"action": "live_lost"})
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)

    async def _flush(self, connection: AsyncConnection) -> None:
        self._stirred.clear()
        if done := sorted(self._done.items()):
            await connection.execute(CLEAR, _columns([(key, *value) for key, value in done], 5))
            for key, value in done:
                if self._done[key] == value:
                    del self._done[key]
        messages = [message.dump() for said in self._said.values() for message in said.take()]
        if messages:
            await connection.execute(NOTIFY, (messages,))
        await self._save(connection)

    async def _save(self, connection: AsyncConnection) -> None:
        now = asyncio.get_running_loop().time()
        unsaved = [said for said in self._said.values() if said.saved < said.index]
        due = sorted((said for said in unsaved if now >= said.saved_at + SAVE_S), key=lambda said: said.at)
        if len(due) < len(unsaved):
            self._stirred.set()  # to look again at the next beat
        if not due:
            return
        rows = [(*said.at, said.index, "".join(said.texts["text"]), "".join(said.texts["thinking"])) for said in due]
        beats = [said.message("text", "") for said in due]
        await connection.execute(SAVE, (*_columns(rows, 8), [beat.dump() for beat in beats]))
        for said, beat in zip(due, beats, strict=True):
            said.saved, said.saved_at = beat.index, now


def _columns(rows: Sequence[tuple[object, ...]], width: int) -> list[list[object]]:
    return [[row[i] for row in rows] for i in range(width)]
