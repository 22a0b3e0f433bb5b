"""What a worker runs: its holds, kept leased while they last, and drained when it stops."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from commands.agent.agenda import AgendaUnavailable
from commands.agent.stopping import stop

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from commands.agent.agenda import Agenda
    from commands.agent.hold import Hold

logger = logging.getLogger(__name__)

RENEW_EVERY_S = 2.0
DRAIN_S = 6.5
"""How long what runs may take to come to its next durable event when the worker stops, …"""
ABANDON_S = 2.0
"""… and then to end: all within ten seconds."""


class _Running(NamedTuple):
    hold: Hold
    task: asyncio.Task[None]


class Holds:
    """The conversations that this process works on, one hold each; `on_end` is told of every end."""

    def __init__(self, agenda: Agenda, on_end: Callable[[Hold], None]) -> None:
        self._agenda, self._on_end = agenda, on_end
        self._running: dict[UUID, _Running] = {}
        self._renewed_at = 0.0
        self.closed = False

    def __len__(self) -> int:
        return len(self._running)

    def __contains__(self, conversation_id: object) -> bool:
        return conversation_id in self._running

    def open(self) -> None:
        """Run from now on what is started."""
        self.closed, self._renewed_at = False, _time()

    def close(self) -> None:
        """Let go from now on of what is started."""
        self.closed = True

    def start(self, hold: Hold) -> None:
        """Work on a conversation, after whoever still does under a claim that ran out unnoticed."""
        former = self._running.get(hold.claim.conversation_id)
        if former is not None:  # the process stood still
            former.hold.abandon()
        if self.closed:
            hold.let_go()
        task = asyncio.create_task(self._work(hold, former), name=f"conversation {hold.claim.conversation_id}")
        self._running[hold.claim.conversation_id] = _Running(hold, task)

    async def keep_leases(self) -> NoReturn:
        """Renew all leases by one statement, again and again.

        While that fails nobody is stopped: if another worker takes over, the log says so.
        """
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            try:
                await self._renew()
            except AgendaUnavailable as error:
                logger.warning("cannot renew leases: %s", error, extra={"action": "agenda_unavailable"})

    async def renew_what_is_late(self) -> None:
        """After an outage leases come first: what this worker still runs must not be claimed again, by itself."""
        if _time() > self._renewed_at + 2 * RENEW_EVERY_S:
            await self._renew()

    async def drain(self) -> None:
        """Let what runs come to its next durable event, then hand everything back."""
        for running in list(self._running.values()):
            running.hold.let_go()
        await self._all_end(within_s=DRAIN_S)
        for running in list(self._running.values()):
            running.hold.abandon()
        await self._all_end(within_s=ABANDON_S)
        await stop([running.task for running in self._running.values()], within_s=ABANDON_S / 2)

    async def _work(self, hold: Hold, former: _Running | None) -> None:
        try:
            if former is not None:
                await asyncio.wait([former.task])
            await hold.work()
        finally:
            if self._runs(hold):
                del self._running[hold.claim.conversation_id]
            self._on_end(hold)

    def _runs(self, hold: Hold) -> bool:
        running = self._running.get(hold.claim.conversation_id)
        return running is not None and running.hold is hold

    async def _renew(self) -> None:
        holds, asked_at = [running.hold for running in self._running.values()], _time()
        held = await self._agenda.extend([hold.claim for hold in holds]) if holds else set()
        self._renewed_at = asked_at  # the leases may be as old as that, however long the answer was on its way
        for hold in holds:
            if hold.claim.conversation_id not in held and self._runs(hold):
                logger.info("a conversation is not held any more", extra={"action": "lease_lost"})
                hold.abandon()

    async def _all_end(self, *, within_s: float) -> None:
        if tasks := [running.task for running in self._running.values()]:
            await asyncio.wait(tasks, timeout=within_s)


def _time() -> float:
    return asyncio.get_running_loop().time()
