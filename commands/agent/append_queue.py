"""The one way from a runner to the log: one decision after the other, through lost races and outages."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from commands.agent.fence import Fence
from commands.ports import TooManyRaces
from domain.errors import Superseded

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands.agent.surroundings import Decide
    from commands.session import Session
    from domain.event_store import StoreError

logger = logging.getLogger(__name__)

STORE_PAUSE_S = 0.25


class _Waiting(NamedTuple):
    decide: Decide
    decided: asyncio.Future[None]


class AppendQueue:
    """Appends for one runner, until it is closed, given up, or another worker has written to the conversation.

    `stir` is called when somebody waits for `settle`.
    """

    def __init__(self, session: Session, stir: Callable[[], None]) -> None:
        self._session, self._stir = session, stir
        self._fence = Fence(session)
        self._waiting: deque[_Waiting] = deque()
        self._given_up = self._closed = False
        self.in_flight = False
        """Whether an append was given up whose outcome is not known."""

    @property
    def overtaken(self) -> bool:
        """Whether another worker has written."""
        return self._fence.overtaken

    def give_up(self) -> None:
        """Append nothing more, and wait for the log no longer."""
        self._given_up = True

    def close(self) -> None:
        """Refuse who waits, and who comes: the thread of a tool that was left behind would wait for ever."""
        self._closed = True
        for waiting in self._waiting:
            _answer(waiting, recorded=False)
        self._waiting.clear()

    async def record(self, decide: Decide) -> None:
        """Have a decision appended by whoever calls `settle`; returns when it is durable.

        Raises `Superseded` when its place was taken, or nobody is there any more to append it.
        """
        if self._closed:
            raise Superseded("the conversation is not worked on here any more")
        waiting = _Waiting(decide, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._stir()
        await waiting.decided

    async def settle(self) -> None:
        """Append what waits now; who comes meanwhile has stirred."""
        for _ in range(len(self._waiting)):
            waiting = self._waiting[0]
            if not waiting.decided.done():  # else its task was cancelled meanwhile
                _answer(waiting, recorded=await self.append(waiting.decide))
            self._waiting.popleft()

    async def append(self, decide: Decide) -> bool:
        """Append a decision, however often others are first and however long the log is away.

        False when it was superseded or given up. Raises `ConversationNotFound`, `UnknownEventType`, and `StoreError`
        when it was given up while the log was away.
        """
        guarded = self._fence.guarded(decide)
        while not self._given_up:
            try:
                await self._session.append(guarded, outage=self._bear)
            except Superseded as superseded:
                logger.info("not recorded: %s", superseded, extra={"action": "superseded"})
                return False
            except TooManyRaces:
                logger.info("others are always first to append", extra={"action": "races_lost"})
            else:
                self._fence.appended()
                return True
        return False

    async def _bear(self, error: StoreError) -> None:
        if self._given_up:
            self.in_flight = True
            raise error
        await out_of_reach(error)


async def out_of_reach(error: StoreError) -> None:
    """Note that the log is away, and wait a little."""
    logger.warning("the log is out of reach: %s", error, extra={"action": "store_retried"})
    await asyncio.sleep(STORE_PAUSE_S)


def _answer(waiting: _Waiting, *, recorded: bool) -> None:
    if waiting.decided.done():
        return
    if recorded:
        waiting.decided.set_result(None)
    else:
        waiting.decided.set_exception(Superseded("its place in the log was taken"))
