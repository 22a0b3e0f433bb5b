"""A worker: looks for conversations that owe something, claims them, and hands all back when it stops."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

from commands.agent.agenda import AgendaUnavailable
from commands.agent.hold import Hold
from commands.agent.holds import Holds
from commands.agent.lookout import Lookout, again
from commands.agent.stopping import stop
from commands.agent.titles import Titles

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from uuid import UUID

    from commands.agent.agenda import Agenda, Claim
    from commands.agent.surroundings import Surroundings
    from commands.session import Session

logger = logging.getLogger(__name__)

LEASE_S = 8.0
SWEEP_EVERY_S = 60.0
DEADLINES_EVERY_S = 0.1
DEADLINES_BESIDE = 32
"""While there is no free slot deadlines are looked for this often, and so many kept at a time."""
LAST_CLAIMS_S = 0.5
"""So long a worker that stops waits for the answers to its last claims."""


class Worker:
    """Runs up to `concurrency` conversations at a time in this process."""

    def __init__(self, agenda: Agenda, surroundings: Surroundings, *, concurrency: int) -> None:
        self._agenda, self._surroundings, self._concurrency = agenda, surroundings, concurrency
        self._claims: set[asyncio.Task[list[Claim]]] = set()
        self._claiming = asyncio.Lock()
        self._lookout = Lookout(agenda, self._claim_due)
        self._holds = Holds(agenda, on_end=self._ended)
        self._nearby: asyncio.Queue[Session] = asyncio.Queue()
        self._titles = Titles(surroundings)
        self._sweep_at = 0.0

    @property
    def running(self) -> int:
        """How many conversations are being worked on."""
        return len(self._holds)

    def hint(self, session: Session) -> bool:
        """Take a conversation that owes something, from somebody in this process who needs it no longer.

        False if it had better be hinted to all workers, because this one has no free slot.
        """
        if self._holds.closed or self.running + self._nearby.qsize() >= self._concurrency:
            return False
        self._nearby.put_nowait(session)
        return True

    async def run(self) -> None:
        """Work for ever; cancel it to stop: what runs is drained to its next durable event, within ten seconds."""
        self._holds.open()
        keeping = asyncio.create_task(again(self._holds.keep_leases), name="leases")
        looking = [
            asyncio.create_task(again(self._follow_nearby), name="hints from nearby"),
            asyncio.create_task(again(self._follow_hints), name="hints"),
            asyncio.create_task(again(self._lookout.follow), name="agenda"),
            asyncio.create_task(again(self._follow_deadlines), name="deadlines"),
        ]
        try:
            await asyncio.wait([keeping, *looking])
        finally:
            self._holds.close()
            await stop(looking)
            if self._claims:
                await asyncio.wait(self._claims, timeout=LAST_CLAIMS_S)
            await self._holds.drain()
            await self._titles.stop()
            await stop([keeping])

    async def _follow_hints(self) -> None:
        async with aclosing(self._agenda.hints()) as hints:
            async for conversation_id in hints:
                if conversation_id is None:
                    self._lookout.look()
                else:
                    await self._claim_hinted(conversation_id)

    async def _follow_nearby(self) -> None:
        while True:
            session = await self._nearby.get()
            await self._claim_hinted(session.conversation_id, session)

    async def _claim_due(self) -> bool:
        await self._sweep()
        await self._holds.renew_what_is_late()
        async with self._claiming:
            free = self._concurrency - self.running
            return free <= 0 or await self._claim(self._agenda.claim(free)) == free

    async def _follow_deadlines(self) -> None:
        """Let calls expire in time also while there is no free slot; what follows from that waits for one."""
        while True:
            await asyncio.sleep(DEADLINES_EVERY_S)
            beside = self.running - self._concurrency
            if 0 <= beside < DEADLINES_BESIDE:
                try:
                    await self._holds.renew_what_is_late()
                    await self._claim(self._agenda.claim_expired(DEADLINES_BESIDE - beside), deadlines_only=True)
                except AgendaUnavailable as error:
                    logger.warning("cannot look for deadlines: %s", error, extra={"action": "agenda_unavailable"})

    async def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_EVERY_S
            await self._agenda.sweep()

    async def _claim_hinted(self, conversation_id: UUID, session: Session | None = None) -> None:
        """Claim it if there is a free slot and nobody here works on it, who would follow the log.

        What is missed here, the agenda finds.
        """

        async def asked() -> list[Claim]:
            claim = await self._agenda.claim_hinted(conversation_id)
            return [claim] if claim else []

        try:
            async with self._claiming:
                if self.running < self._concurrency and conversation_id not in self._holds:
                    await self._claim(asked(), session)
        except AgendaUnavailable as error:
            logger.info("missed a hint: %s", error, extra={"action": "agenda_unavailable"})

    async def _claim(
        self,
        asked: Coroutine[None, None, list[Claim]],
        session: Session | None = None,
        *,
        deadlines_only: bool = False,
    ) -> int:
        """Start what is claimed and return how much that is; also what is claimed while whoever asks is stopped."""
        task = asyncio.create_task(asked, name="claim")
        self._claims.add(task)
        task.add_done_callback(partial(self._claimed, session, deadlines_only))
        return len(await asyncio.shield(task))

    def _claimed(self, session: Session | None, deadlines_only: bool, task: asyncio.Task[list[Claim]]) -> None:
        self._claims.discard(task)
        if not task.cancelled() and task.exception() is None:
            for claim in task.result():
                hold = Hold(claim, self._agenda, self._surroundings, session, deadlines_only=deadlines_only)
                self._holds.start(hold)

    def _ended(self, hold: Hold) -> None:
        self._lookout.look()  # there may be more that is due than there were free slots
        if hold.answered is not None:
            self._titles.begin(hold.answered)
