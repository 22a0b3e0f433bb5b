"""What others append to a conversation while somebody works on it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import aclosing
from typing import TYPE_CHECKING, NoReturn

from commands.agent.append_queue import STORE_PAUSE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands.session import Session
    from domain.event_store import EventStore, StoredEvent

logger = logging.getLogger(__name__)


class News:
    """Collects a conversation's new events until `fold`; `stir` is called whenever there are some."""

    def __init__(self, store: EventStore, session: Session, stir: Callable[[], None]) -> None:
        self._store, self._session, self._stir = store, session, stir
        self._batches: deque[tuple[StoredEvent, ...]] = deque()

    def fold(self) -> None:
        """Fold into the session what has come; it leaves out what it knows."""
        while self._batches:
            self._session.fold(self._batches.popleft())

    async def follow(self) -> NoReturn:
        """Take in the conversation's new events, for ever."""
        while True:
            try:
                session = self._session
                async with aclosing(self._store.subscribe_stream(session.stream, session.seq)) as batches:
                    async for batch in batches:
                        self._batches.append(batch.events)
                        self._stir()
            except Exception as error:  # whatever it is: nobody else would tell the runner what others append
                logger.warning("following a conversation again: %s", error, extra={"action": "resubscribed"})
            await asyncio.sleep(STORE_PAUSE_S)
