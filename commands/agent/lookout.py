"""Looking at an agenda whenever something may be due there, for ever."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from commands.agent.agenda import AgendaUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from commands.agent.agenda import Agenda

logger = logging.getLogger(__name__)

SHORTEST_SLEEP_S = 0.02
LONGEST_SLEEP_S = 5.0
UNAVAILABLE_PAUSE_S = 1.0


class Lookout:
    """Calls `claim` when something is due, when told to `look`, and now and then.

    `claim` takes what is due into the free slots, and says whether they are all taken: then only an end matters.
    """

    def __init__(self, agenda: Agenda, claim: Callable[[], Awaitable[bool]]) -> None:
        self._agenda, self._claim = agenda, claim
        self._told = asyncio.Event()

    def look(self) -> None:
        """Look at once, or again right after the look that is under way."""
        self._told.set()

    async def follow(self) -> NoReturn:
        """Look for ever."""
        while True:
            self._told.clear()
            pause = await self._looked()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._told.wait()

    async def _looked(self) -> float:
        try:
            due_in = None if await self._claim() else await self._agenda.due_in()
        except AgendaUnavailable as error:
            logger.warning("cannot look at the agenda: %s", error, extra={"action": "agenda_unavailable"})
            return UNAVAILABLE_PAUSE_S
        return LONGEST_SLEEP_S if due_in is None else min(max(due_in, SHORTEST_SLEEP_S), LONGEST_SLEEP_S)


async def again(follow: Callable[[], Awaitable[None]]) -> NoReturn:
    """Run it for ever: a worker that has stopped looking, and goes on breathing, would be worse than any error."""
    while True:
        try:
            await follow()
        except Exception:
            logger.exception("a worker stumbled, and goes on", extra={"action": "worker_stumbled"})
        await asyncio.sleep(UNAVAILABLE_PAUSE_S)
