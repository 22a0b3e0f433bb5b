"""A conversation that a worker has claimed: worked on until it can be handed back."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from commands.agent.agenda import AgendaUnavailable
from commands.agent.runner import Runner
from commands.log_context import log_with
from domain.errors import ConversationNotFound, UnknownEventType
from domain.event_store import StoreError
from domain.titles import first_completed

if TYPE_CHECKING:
    from commands.agent.agenda import Agenda, Claim
    from commands.agent.runner import Rest
    from commands.agent.surroundings import Surroundings
    from commands.session import Session

logger = logging.getLogger(__name__)

OUTAGE_PAUSE_S = 1.0
FAILED_PAUSE_S = 2.0
ABSENT_PAUSE_S = 30.0
FOLDED_S = 1.0
"""Until then it has been projected that a deadline is no longer what is due."""
UNKNOWN_PAUSE_S = 5.0
"""No longer: newer workers, who know more events, are kept away too."""


class Hold:
    """One claim, from the first look into the log to the moment when it is handed back, or lost.

    `session` is that first look, where somebody in this process has just had it. It is older than the claim, so it
    will do only where the first thing is an append, which shows that nothing is newer: to start a turn.
    With `deadlines_only` what has expired is closed, and all the rest left to whoever has time for it.
    """

    def __init__(
        self,
        claim: Claim,
        agenda: Agenda,
        surroundings: Surroundings,
        session: Session | None = None,
        *,
        deadlines_only: bool = False,
    ) -> None:
        self.claim = claim
        self._session = session if session is not None and session.conversation.turn is None else None
        self._agenda, self._surroundings = agenda, surroundings
        self._runner: Runner | None = None
        self.answered: Session | None = None
        """The conversation with the first turns that were completed here, if any were; `news` has them."""
        self._letting_go, self._abandoned = deadlines_only, False
        self._pause_s = FOLDED_S if deadlines_only else 0.0

    def let_go(self) -> None:
        """Come to the next durable event, and hand back."""
        self._letting_go = True
        if self._runner is not None:
            self._runner.let_go()

    def abandon(self) -> None:
        """Stop at once: the claim is another's, or time is up."""
        self._abandoned = True
        if self._runner is not None:
            self._runner.abandon()

    async def work(self) -> None:
        """Work until nothing is owed; nothing but a cancellation is raised, and then the claim is not handed back."""
        log_with(conversation_id=str(self.claim.conversation_id))
        try:
            await self._work_until_rest()
        except ConversationNotFound:
            logger.info("there is no such conversation (any more)", extra={"action": "conversation_absent"})
            await self._release(ABSENT_PAUSE_S)
        except UnknownEventType as error:
            logger.warning("left to newer workers: %s", error, extra={"action": "unknown_event"})
            await self._release(UNKNOWN_PAUSE_S)
        except StoreError as error:
            logger.debug("the log is out of reach: %s", error, extra={"action": "conversation_put_off"})
            await self._release(OUTAGE_PAUSE_S)
        except Exception:
            logger.exception("a conversation could not be worked on", extra={"action": "runner_failed"})
            await self._release(FAILED_PAUSE_S, failed=True)

    async def _work_until_rest(self) -> None:
        takeover = self.claim.takeover
        while True:
            early, self._session = self._session, None
            session = early or await self._surroundings.conversations.load(self.claim.conversation_id)
            self._runner = runner = Runner(session, self._surroundings, takeover=takeover)
            if self._letting_go:
                runner.let_go()
            if self._abandoned:
                runner.abandon()
            rest = await runner.run()
            if self.answered is None and first_completed(session.news):
                self.answered = session
            if rest is not None and await self._finish(rest):
                return
            if self._letting_go or not (rest or runner.overtaken):
                return await self._release(self._pause_s)
            if not await self._still_held():
                logger.info("another worker has the conversation", extra={"action": "claim_lost"})
                return
            # who wrote after an early look may have let go since: the claim says so
            takeover = runner.overtaken and (early is None or self.claim.takeover)

    async def _finish(self, rest: Rest) -> bool:
        try:
            return await self._agenda.finish(self.claim, rest.seq, rest.due_at)
        except AgendaUnavailable as error:  # it may have been: then the claim is not held any more
            logger.info("not known to be handed back: %s", error, extra={"action": "agenda_unavailable"})
            return False

    async def _still_held(self) -> bool:
        """Ask whose the conversation is, as long as it takes: nobody works on it here meanwhile."""
        while not (self._letting_go or self._abandoned):
            try:
                return self.claim.conversation_id in await self._agenda.extend([self.claim])
            except AgendaUnavailable as error:
                logger.info("not known whose it is: %s", error, extra={"action": "agenda_unavailable"})
                await asyncio.sleep(OUTAGE_PAUSE_S)
        return False

    async def _release(self, pause_s: float, *, failed: bool = False) -> None:
        unclean = not self._runner.clean if self._runner else self.claim.takeover
        try:
            await self._agenda.release(self.claim, pause_s=pause_s, failed=failed or unclean)
        except AgendaUnavailable as error:
            logger.info("left to its lease: %s", error, extra={"action": "agenda_unavailable"})
