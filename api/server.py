"""Listening: from an application to an address, and back without cutting anybody off."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 5.0
WAITING_CONNECTIONS = 1024
LONGEST_LINE_BYTES = 128 * 1024
"""A query string that is too long is told so by what it asks for, in the form of all refusals."""


@asynccontextmanager
async def listening(
    app: web.Application, host: str, port: int, *, drain_s: float = DRAIN_SECONDS
) -> AsyncIterator[str]:
    """Serve while the block runs and yield the URL; port 0 is any free one. Raises `OSError` if the address is taken.

    At the end nobody new is let in, the application's `on_shutdown` ends its streams, requests under way get up to
    `drain_s` seconds, and only then are resources of the application cleaned up.
    """
    runner = web.AppRunner(
        app, access_log=None, shutdown_timeout=drain_s, logger=protocol_logger, max_line_size=LONGEST_LINE_BYTES
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, backlog=WAITING_CONNECTIONS)
        await site.start()
        address, bound, *_ = runner.addresses[0]
        yield f"http://[{address}]:{bound}" if ":" in address else f"http://{address}:{bound}"
    finally:
        await runner.cleanup()


def _is_ours(record: logging.LogRecord) -> bool:
    """Leave out what is no HTTP, a client's affair: its bytes, which the error quotes, may hold a key."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        logger.info("refused what is no HTTP: %s", type(error).__name__, extra={"action": "no_http"})
        return False
    return True


protocol_logger = logging.getLogger(f"{__name__}.protocol")
protocol_logger.addFilter(_is_ours)
