"""A line to the server: one client, and how long an outage is borne."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, TypeVar

from domain.event_store import StoreError
from infra.cancellations import cancellations
from infra.eventstoredb.clients import Client, Interrupted, NodeIsNotLeaderError, ServiceUnavailableError, new_client
from infra.eventstoredb.errors import ANSWERS, LOSSES, passing_reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 1.0
OTHERS_SECONDS = 1.0


class Line:
    """One client object. A failing call makes it reconnect under all its other calls, hence one line per purpose.

    Once an outage has outlasted a call's patience, only one call at a time goes on asking, and the others fail soon.
    """

    def __init__(self, uri: str, patience: float) -> None:
        self._client, self._patience = new_client(uri), patience
        self._connecting = asyncio.Lock()
        self._connection = 0
        self._closed = False
        self._under_way = self._asking = 0
        self._idle, self._answered = asyncio.Event(), asyncio.Event()
        self._answered.set()
        self._reason = "it does not answer"

    async def call(
        self, attempt: Callable[[Client], Awaitable[T]], *, patience: float | None = None, quiet: bool = False
    ) -> T:
        """Repeat `attempt` through an outage, with jittered pauses, for `patience` seconds; then raise `StoreError`.

        The server's `ANSWERS` come through as they are. What does not pass by itself, such as a wrong password, is a
        `StoreError` at once. The first loss is logged unless `quiet`.
        """
        self._under_way += 1
        try:
            if self._asking and not self._answered.is_set():
                await self._others_answer()
            self._asking += 1
            try:
                async with asyncio.timeout(patience or self._patience):
                    return await self._insist(attempt, quiet=quiet)
            finally:
                self._asking -= 1
        except TimeoutError as error:
            self._answered.clear()
            raise StoreError(f"EventStoreDB is out of reach: {self._reason}") from error
        finally:
            self._under_way -= 1
            self._idle.set()

    async def _insist(self, attempt: Callable[[Client], Awaitable[T]], *, quiet: bool) -> T:
        pause, used, lost = FIRST_PAUSE_SECONDS, 0, 0
        while True:
            try:
                client = await self.connected(lost)
                used = self._connection
                answer = await uncancelled(attempt(client))
            except ANSWERS:
                self._answered.set()
                raise
            except LOSSES as error:
                if self._closed:
                    raise StoreError("the event store was closed") from error
                self._reason = passing_reason(error)
                if pause == FIRST_PAUSE_SECONDS and not quiet:
                    logger.warning("EventStoreDB is away: %s", self._reason, extra={"action": "store_retry"})
                if isinstance(error, (NodeIsNotLeaderError, ServiceUnavailableError)):
                    lost = used
            except AttributeError as error:  # a client that was closed has no connection any more
                if not self._closed:
                    raise
                raise StoreError("the event store was closed") from error
            else:
                self._answered.set()
                return answer
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _others_answer(self) -> None:
        """Wait a little for what another call, which goes on asking, finds out; raises `TimeoutError`."""
        async with asyncio.timeout(OTHERS_SECONDS):
            await self._answered.wait()

    async def connected(self, lost: int = 0) -> Client:
        """Return the client, on a newer connection than the `lost` one; `StoreError` once the line is closed.

        The client itself connects anew for appends, but not when a read fails while it is iterated.
        """
        if not self._closed and self._connection <= lost:
            async with self._connecting:  # in a cluster this asks around for the leader, and may fail
                if self._connection == 0:
                    await self._client.connect()
                    self._connection = 1
                elif self._connection <= lost:
                    await self._client.reconnect()
                    self._connection += 1
            if self._closed:
                await self._client.close()
        if self._closed:
            raise StoreError("the event store is closed")
        return self._client

    async def renew(self) -> None:
        """Connect anew, in a cluster to whoever leads it now; what is under way is interrupted."""
        await self.connected(self._connection)

    async def close(self, grace: float = 0.0) -> None:
        """Give calls that are under way `grace` seconds, then hang up."""
        until = asyncio.get_running_loop().time() + grace
        while self._under_way and (left := until - asyncio.get_running_loop().time()) > 0:
            self._idle.clear()
            try:
                async with asyncio.timeout(left):
                    await self._idle.wait()
            except TimeoutError:
                break
        self._closed = True
        if self._connection:
            await self._client.close()


async def uncancelled(call: Awaitable[T]) -> T:
    """Await a client's call; a cancellation goes on exactly if it is our task's.

    The client cancels its own calls when it reconnects, and swallows a task's cancellation while it iterates.
    """
    before = cancellations()
    try:
        return await call
    except asyncio.CancelledError:
        raise Interrupted("the connection was lost") from None
    finally:
        if cancellations() > before:
            raise asyncio.CancelledError
