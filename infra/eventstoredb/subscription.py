"""The one live subscription of a process: it follows `$all` through every outage and fans out what it receives."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, NoReturn

from domain.event_store import StoreError
from infra.cancellations import cancellations
from infra.eventstoredb.deletions import LEDGER
from infra.eventstoredb.errors import LOSSES, in_short
from infra.eventstoredb.records import more_to_come

if TYPE_CHECKING:
    from domain.event_store import StoredEvent
    from infra.eventstoredb.deletions import Deletions
    from infra.eventstoredb.line import Line
    from infra.eventstoredb.reader import Reader
    from infra.eventstoredb.records import Names
    from infra.fan_out import FanOut

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 2.0
SILENCE_SECONDS, LATE_SECONDS = 3.0, 1.0
"""A subscription that is silent for so long is checked: what it then does not bring within a second, it misses."""


class LiveSubscription:
    """Receives the log once for all subscribers of the process, from the first one on.

    A loss, loud or silent, is answered by subscribing again from the last position that was fanned out.
    """

    def __init__(
        self,
        line: Line,
        reader: Reader,
        names: Names,
        deletions: Deletions,
        fan_out: FanOut,
        patience: float,
    ) -> None:
        self._line, self._reader, self._names = line, reader, names
        self._deletions, self._fan_out, self._patience = deletions, fan_out, patience
        self._position: int | None = None
        self._subscribed = asyncio.Event()
        self._tasks: set[asyncio.Task[NoReturn]] = set()

    async def started(self) -> None:
        """Return when everything appended from now on will be fanned out; `StoreError` if that takes too long."""
        if not self._tasks:
            # in a context of their own: what they log is not about the conversation of the first subscriber
            for name, run in (("live subscription to the log", self._run), ("its watch", self._watch)):
                self._tasks.add(asyncio.create_task(run(), name=name, context=Context()))
        if not self._subscribed.is_set():
            try:
                async with asyncio.timeout(self._patience):
                    await self._subscribed.wait()
            except TimeoutError as error:
                raise StoreError("EventStoreDB is out of reach: cannot subscribe to it") from error

    async def close(self) -> None:
        """Stop receiving."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self) -> NoReturn:
        pause = FIRST_PAUSE_SECONDS
        while True:
            before = self._position
            try:
                await self._receive()
                reason = "the subscription ended"  # the client's way to say that it has lost it
            except asyncio.CancelledError:
                _leave_if_cancelled()
                reason = "the connection was lost"
            except (StoreError, *LOSSES) as error:
                reason = in_short(error)
            except Exception:  # nothing that we know of; but subscribers must not be left waiting for ever
                logger.exception("receiving the log's live events broke", extra={"action": "listen_broken"})
                reason = "it broke"
            _leave_if_cancelled()  # the client swallows a cancellation that comes while it iterates
            logger.warning("lost the log's live events: %s", reason, extra={"action": "listen_lost"})
            pause = FIRST_PAUSE_SECONDS if self._position != before else min(pause * 2, LONGEST_PAUSE_SECONDS)
            await asyncio.sleep(pause * random.uniform(0.5, 1))

    async def _watch(self) -> NoReturn:
        """Have the line renewed when nothing comes of what is there, as from a node that its cluster has lost."""
        while True:
            before = self._position
            await asyncio.sleep(SILENCE_SECONDS)
            with suppress(StoreError, *LOSSES):  # an outage, which is not silent
                if before is not None and before == self._position and await self._misses(before):
                    await asyncio.sleep(LATE_SECONDS)
                    if before == self._position:
                        logger.warning("the log's live events do not come", extra={"action": "listen_silent"})
                        await self._line.renew()

    async def _misses(self, position: int) -> bool:
        records, *_ = await self._reader.all(position, 1, self._names.filter())
        return bool(records)

    async def _receive(self) -> None:
        if self._position is None:
            self._position = await self._reader.head()
        await self._deletions.refresh()
        client = await self._line.connected()
        subscription = await client.subscribe_to_all(
            commit_position=self._position or None,
            filter_include=self._names.filter(),
            filter_by_stream_name=True,
            include_checkpoints=True,
            include_caught_up=True,
        )
        self._subscribed.set()
        live = torn = False
        append: list[StoredEvent] = []
        checkpoint = self._position
        async with subscription:
            async for record in subscription:
                if record.is_caught_up:
                    live = True
                elif record.is_checkpoint:
                    # While catching up servers also tell where a page began, prepare 0: nothing is lost by ignoring it,
                    # and some (24.10.4, 25.0.0) give an empty page's, at which the next event is going to be.
                    if record.commit_position == record.prepare_position:
                        checkpoint = record.commit_position or 0
                else:
                    append.append(self._names.stored(record))
                    checkpoint = append[-1].position
                    torn = more_to_come(record)
                if not torn:  # what is said in the middle of an append is said again after it
                    self._position = max(self._position, checkpoint)
                    self._deliver(append, live=live)
                    append = []

    def _deliver(self, append: list[StoredEvent], *, live: bool) -> None:
        for event in append:
            if event.stream == LEDGER:
                self._deletions.learn(event)
        shown = tuple(event for event in append if self._deletions.shows(event))
        self._fan_out.deliver(shown, self._position or 0, caught_up=live)


def _leave_if_cancelled() -> None:
    if cancellations():
        raise asyncio.CancelledError
