"""Compacting what the agenda says is owed: beside the turns, a few at a time, and never in their way."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from commands.agent.agenda import AgendaUnavailable
from commands.agent.compaction import compact
from commands.agent.holds import RENEW_EVERY_S
from commands.agent.lookout import Lookout, again
from commands.agent.model import ModelError
from commands.agent.stopping import stop
from commands.log_context import log_with
from domain.errors import ConversationNotFound, UnknownEventType
from domain.event_store import StoreError
from domain.summarising import Refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from commands.agent.agenda import Agenda, Claim
    from commands.agent.surroundings import Surroundings

logger = logging.getLogger(__name__)

AT_ONCE = 4
TRIES = 5
"""What failed so often in a row is given up, until another turn ends beyond the budget or somebody asks again."""
FAILED_PAUSE_S = 15.0
"""After the first failure; after the second twice as long, and so on."""
OUTAGE_PAUSE_S = 1.0


class Compactor:
    """Claims conversations that owe a compaction and works on them; `agenda` is the one of that kind."""

    def __init__(self, agenda: Agenda, surroundings: Surroundings) -> None:
        self._agenda, self._surroundings = agenda, surroundings
        self._running: set[asyncio.Task[None]] = set()
        self._lookout = Lookout(agenda, self._claim_due)

    async def run(self) -> None:
        """Work for ever; cancelled, it stops what runs, which is owed further on."""
        looking = [
            asyncio.create_task(again(self._follow_hints), name="hints of compactions"),
            asyncio.create_task(again(self._lookout.follow), name="agenda of compactions"),
        ]
        try:
            await asyncio.wait(looking)
        finally:
            await stop(looking)
            await stop(self._running)

    async def _follow_hints(self) -> None:
        async with aclosing(self._agenda.hints()) as hints:
            async for _ in hints:
                self._lookout.look()

    async def _claim_due(self) -> bool:
        if (free := AT_ONCE - len(self._running)) > 0:
            for claim in await self._agenda.claim(free):
                task = asyncio.create_task(self._work(claim), name=f"compaction of {claim.conversation_id}")
                self._running.add(task)
                task.add_done_callback(self._ended)
        return len(self._running) >= AT_ONCE

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._lookout.look()

    async def _work(self, claim: Claim) -> None:
        log_with(conversation_id=str(claim.conversation_id))
        failed = False
        try:
            async with self._kept(claim):
                await compact(claim.conversation_id, self._surroundings)
        except ConversationNotFound:
            logger.info("there is no such conversation (any more)", extra={"action": "conversation_absent"})
        except Refused as refused:
            logger.info("not summarised: %s", refused, extra={"action": "summary_refused"})
        except (StoreError, UnknownEventType) as error:
            logger.warning("a compaction is put off: %s", error, extra={"action": "compaction_put_off"})
            return await self._release(claim, OUTAGE_PAUSE_S, failed=False)
        except ModelError as error:
            logger.warning("a compaction failed: %s", error, extra={"action": "compaction_failed"})
            failed = claim.strikes + 1 < TRIES
        except asyncio.CancelledError:
            await self._release(claim, 0, failed=False)
            raise
        except Exception:
            logger.exception("a conversation could not be compacted", extra={"action": "compaction_failed"})
            failed = claim.strikes + 1 < TRIES
        if failed:
            return await self._release(claim, FAILED_PAUSE_S, failed=True)
        try:
            handed_back = await self._agenda.finish(claim, claim.seq, None)
        except AgendaUnavailable as error:
            logger.info("left to its lease: %s", error, extra={"action": "agenda_unavailable"})
            return
        if not handed_back:  # newer events were folded meanwhile: the agenda knows whether they owe anything
            await self._release(claim, 0, failed=False)

    @asynccontextmanager
    async def _kept(self, claim: Claim) -> AsyncIterator[None]:
        """Renew the claim's lease while the block runs. Whoever claims it all the same is met at the log."""
        keeping = asyncio.create_task(again(lambda: self._keep(claim)), name="lease of a compaction")
        try:
            yield
        finally:
            await stop([keeping])

    async def _keep(self, claim: Claim) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            try:
                await self._agenda.extend([claim])
            except AgendaUnavailable as error:
                logger.info("cannot renew a lease: %s", error, extra={"action": "agenda_unavailable"})

    async def _release(self, claim: Claim, pause_s: float, *, failed: bool) -> None:
        try:
            await self._agenda.release(claim, pause_s=pause_s, failed=failed)
        except AgendaUnavailable as error:
            logger.info("left to its lease: %s", error, extra={"action": "agenda_unavailable"})
