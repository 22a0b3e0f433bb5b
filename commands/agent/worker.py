"""A worker: claims conversations that owe something, keeps their leases, and hands them back when they rest."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from commands.agent.agenda import AgendaUnavailable
from commands.agent.runner import Runner
from domain.errors import ConversationNotFound, UnknownEventType

if TYPE_CHECKING:
    from uuid import UUID

    from commands.agent.agenda import Agenda, Claim
    from commands.agent.surroundings import Surroundings

logger = logging.getLogger(__name__)

LEASE_S = 8.0
RENEW_EVERY_S = 2.0
SHORTEST_SLEEP_S = 0.005
LONGEST_SLEEP_S = 5.0
UNAVAILABLE_PAUSE_S = 1.0
DRAIN_S = 7.0
FAILED_PAUSE_S = 2.0
UNKNOWN_PAUSE_S = 30.0


class Worker:
    """Runs up to `concurrency` conversations at a time in this process, until `stop`."""

    def __init__(self, agenda: Agenda, surroundings: Surroundings, *, concurrency: int) -> None:
        self._agenda, self._surroundings, self._concurrency = agenda, surroundings, concurrency
        self._running: dict[UUID, tuple[Claim, asyncio.Task[None]]] = {}
        self._runners: dict[UUID, Runner] = {}
        self._hinted_again: set[UUID] = set()
        self._look = asyncio.Event()
        self._stopping = False

    @property
    def running(self) -> int:
        """How many conversations are being worked on."""
        return len(self._running)

    async def run(self) -> None:
        """Work for ever; cancel it to stop: what runs is drained to its next durable event within `DRAIN_S`."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_hints())
                group.create_task(self._follow_agenda())
                group.create_task(self._keep_leases())
        finally:
            await self._drain()

    async def _follow_hints(self) -> None:
        async with aclosing(self._agenda.hints()) as hints:
            async for conversation_id in hints:
                if conversation_id is None:
                    self._look.set()
                elif conversation_id in self._running:
                    self._hinted_again.add(conversation_id)
                elif self.running < self._concurrency:
                    await self._claim_hinted(conversation_id)

    async def _follow_agenda(self) -> None:
        while True:
            self._look.clear()
            pause = await self._claim_due()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._look.wait()

    async def _claim_due(self) -> float:
        """Claim what is due into the free slots, and say how long to sleep."""
        try:
            while free := self._concurrency - self.running:
                claims = await self._agenda.claim(free)
                for claim in claims:
                    self._start(claim)
                if len(claims) < free:
                    due_in = await self._agenda.due_in()
                    return LONGEST_SLEEP_S if due_in is None else min(max(due_in, SHORTEST_SLEEP_S), LONGEST_SLEEP_S)
        except AgendaUnavailable as error:
            logger.warning("cannot look at the agenda: %s", error, extra={"action": "agenda_unavailable"})
            return UNAVAILABLE_PAUSE_S
        return LONGEST_SLEEP_S

    async def _keep_leases(self) -> None:
        renewed = time.monotonic()
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            asked = time.monotonic()
            claims = [claim for claim, _ in self._running.values()]
            try:
                held = await self._agenda.extend(claims) if claims else set()
                renewed = asked
            except AgendaUnavailable as error:
                logger.warning("cannot renew leases: %s", error, extra={"action": "agenda_unavailable"})
                if asked - renewed < LEASE_S - RENEW_EVERY_S:
                    continue
                held = set()
            for claim in claims:
                if claim.conversation_id not in held and (runner := self._runners.get(claim.conversation_id)):
                    logger.warning("lost a conversation to another worker", extra={"action": "lease_lost"})
                    runner.abandon()

    def _start(self, claim: Claim) -> None:
        task = asyncio.create_task(self._work_on(claim), name=f"conversation {claim.conversation_id}")
        self._running[claim.conversation_id] = claim, task

    async def _work_on(self, claim: Claim) -> None:
        conversation_id = claim.conversation_id
        try:
            await self._work_until_rest(claim)
        except ConversationNotFound:
            await self._release(claim, pause_s=UNKNOWN_PAUSE_S, failed=False)
        except UnknownEventType as error:
            logger.warning("left to newer workers: %s", error, extra={"action": "unknown_event"})
            await self._release(claim, pause_s=UNKNOWN_PAUSE_S, failed=False)
        except Exception:
            logger.exception("a conversation could not be worked on", extra={"action": "runner_failed"})
            await self._release(claim, pause_s=FAILED_PAUSE_S, failed=True)
        finally:
            del self._running[conversation_id]
            self._runners.pop(conversation_id, None)
            self._look.set()
        if conversation_id in self._hinted_again and not self._stopping:
            self._hinted_again.discard(conversation_id)
            await self._claim_hinted(conversation_id)

    async def _work_until_rest(self, claim: Claim) -> None:
        session = await self._surroundings.conversations.load(claim.conversation_id)
        takeover = claim.takeover
        while True:
            runner = self._runners[claim.conversation_id] = Runner(session, self._surroundings)
            if self._stopping:
                runner.let_go()
            rest = await runner.run(takeover=takeover)
            if rest is None:
                return await self._release(claim, pause_s=0, failed=runner.cut_off_tools)
            if await self._agenda.finish(claim, rest.seq, rest.due_at):
                return None
            if claim.conversation_id not in await self._agenda.extend([claim]):
                return None
            takeover = False
            await session.refresh()

    async def _claim_hinted(self, conversation_id: UUID) -> None:
        try:
            if claim := await self._agenda.claim_hinted(conversation_id):
                self._start(claim)
        except AgendaUnavailable as error:
            logger.info("missed a hint: %s", error, extra={"action": "agenda_unavailable"})

    async def _release(self, claim: Claim, *, pause_s: float, failed: bool) -> None:
        try:
            await self._agenda.release(claim, pause_s=pause_s, failed=failed)
        except AgendaUnavailable as error:
            logger.info("left to its lease: %s", error, extra={"action": "agenda_unavailable"})

    async def _drain(self) -> None:
        """Let what runs come to its next durable event, then hand everything back."""
        self._stopping = True
        for runner in self._runners.values():
            runner.let_go()
        tasks = [task for _, task in self._running.values()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=DRAIN_S)
            for runner in self._runners.values():
                runner.abandon()
            await asyncio.gather(*late, return_exceptions=True)
