"""One client of a stream: its connection, how long it may take to read, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from typing import TYPE_CHECKING

from aiohttp import ClientConnectionError, hdrs, web

from api.streams.frames import COMMENT
from domain.event_store import SlowSubscriber, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    Say = Callable[[], Coroutine[None, None, None]]

logger = logging.getLogger(__name__)

KEEP_ALIVE_S = 15.0
WRITE_S = 10.0
"""Who takes nothing for so long, while more waits than the buffers hold, is cut off."""
CHUNK_BYTES = 64 * 1024
SEND_BUFFER_BYTES = 128 * 1024
"""Of the kernel; left alone it would let one client that does not read hold megabytes."""
DEAD_PEER_MS = 30_000
LINGER_NOT = struct.pack("ii", 1, 0)


class _SlowClient(Exception):
    """The client does not read."""


class _Ending(Exception):
    """The server stops."""


class StreamClient:
    """Writes frames to a client until it goes, is too slow, or there is nothing more to say."""

    def __init__(self, request: web.Request, *, keep_alive_s: float = KEEP_ALIVE_S, write_s: float = WRITE_S) -> None:
        self._request, self._keep_alive_s, self._write_s = request, keep_alive_s, write_s
        self._response = web.StreamResponse(
            headers={
                hdrs.CONTENT_TYPE: "text/event-stream",
                hdrs.CACHE_CONTROL: "no-store",
                "X-Accel-Buffering": "no",  # or nginx collects events
            }
        )
        self._ending = asyncio.Event()

    async def run(self, say: Say, *beside: Say) -> web.StreamResponse:
        """Open the stream, do `say` with the others beside it, and end the stream when `say` is done."""
        _limit_buffers(self._request)
        await self._response.prepare(self._request)
        try:
            await self._together(say, beside)
            await self._in_time(self._response.write_eof())
        except* (ConnectionError, ClientConnectionError):
            logger.debug("the client of a stream left", extra={"action": "stream_left"})
        except* (_SlowClient, SlowSubscriber, StoreError) as cut:
            reasons = ", ".join(type(error).__name__.lstrip("_") for error in cut.exceptions)
            logger.info("cut a stream off: %s", reasons, extra={"action": "stream_cut"})
            self.cut_off()
        return self._response

    async def send(self, frames: Iterable[bytes]) -> None:
        """Write frames; waits while the client has not taken what was written before."""
        chunk, size = [], 0
        for frame in frames:
            chunk.append(frame)
            size += len(frame)
            if size >= CHUNK_BYTES:
                await self._in_time(self._response.write(b"".join(chunk)))
                chunk, size = [], 0
        if chunk:
            await self._in_time(self._response.write(b"".join(chunk)))

    def end(self) -> None:
        """End the stream in good order; the client comes back with its cursor."""
        self._ending.set()

    def cut_off(self) -> None:
        """Hang up, and let the kernel too forget what the client has not read."""
        if self._request.transport is None:
            return
        if (connection := _socket_of(self._request)) is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
        self._request.transport.abort()

    async def _together(self, say: Say, beside: Iterable[Say]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                others = [group.create_task(work()) for work in (self._keep_alive, *beside)]
                await say()
                for other in others:
                    other.cancel()
        except* _Ending:
            logger.debug("ended a stream", extra={"action": "stream_ended"})

    async def _keep_alive(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._keep_alive_s):
                    await self._ending.wait()
            except TimeoutError:
                await self.send([COMMENT])
            else:
                raise _Ending

    async def _in_time(self, write: Coroutine[None, None, None]) -> None:
        try:
            async with asyncio.timeout(self._write_s):
                await write
        except TimeoutError:
            raise _SlowClient from None


def _socket_of(request: web.Request) -> socket.socket | None:
    connection: socket.socket | None = request.get_extra_info("socket")
    return connection


def _limit_buffers(request: web.Request) -> None:
    if (connection := _socket_of(request)) is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    if hasattr(socket, "TCP_USER_TIMEOUT") and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_PEER_MS)
