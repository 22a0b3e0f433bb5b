"""Servers that fall silent: whoever waits for one is let go, by hanging up."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import AsyncConnection

STOOD_STILL_S = 1.0
"""Who is so late has been stopped, or had no processor: that says nothing about the server."""


@contextmanager
def hung_up_after(connection: AsyncConnection, seconds: float) -> Iterator[None]:
    """Hang up on a server that has not answered in time: whoever waits for it learns that the connection is lost."""

    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    # Cancelling would ask the server, which is the one that does not answer; a shut socket ends the wait at once.
    def hang_up() -> None:
        nonlocal timer
        if loop.time() > timer.when() + STOOD_STILL_S:  # it was us: the answer may be here, and is not read yet
            timer = loop.call_later(STOOD_STILL_S, hang_up)
        elif not connection.closed:
            with socket.socket(fileno=os.dup(connection.fileno())) as line, suppress(OSError):  # the server was first
                line.shutdown(socket.SHUT_RDWR)

    timer = loop.call_later(seconds, hang_up)
    try:
        yield
    finally:
        timer.cancel()
