"""The scripted model server in a process of its own, steered over HTTP with the same words as the one in process."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import ClientSession, ClientTimeout

from tests.support.model_server import Received
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.model_script import Rule, Scripted


class RemoteModelServer:
    """Steers a server at `url` (…/v1)."""

    def __init__(self, url: str, session: ClientSession) -> None:
        self.url = url
        self._session = session

    async def expect(self, *answers: Scripted) -> None:
        """Queue the next answers."""
        await self._post("expect", [answer.model_dump() for answer in answers])

    async def rule(self, *rules: Rule) -> None:
        """Add rules for requests that find the queue empty."""
        await self._post("rule", [rule.model_dump() for rule in rules])

    async def open(self, gate: str) -> None:
        """Let the streams go on that wait at a gate."""
        await self._post("open", gate)

    async def reset(self) -> None:
        """Forget script, gates and requests."""
        await self._post("reset", [])

    async def requests(self, at_least: int = 0, *, timeout_s: float = PATIENCE_S) -> list[Received]:
        """Wait until so many requests have come."""
        received = await self._post("requests", {"at_least": at_least, "timeout_s": timeout_s})
        return [Received(**{**one, "raw": one["raw"].encode()}) for one in received]

    async def closed(self, number: int, *, timeout_s: float = PATIENCE_S) -> float:
        """Wait until the client has left the request of that number (from 0) early; return when."""
        return float(await self._post("closed", {"number": number, "timeout_s": timeout_s}))

    async def _post(self, what: str, body: Any) -> Any:
        url = f"{self.url.removesuffix('/v1')}/control/{what}"
        async with self._session.post(url, json=body) as response:
            response.raise_for_status()
            return await response.json()


@asynccontextmanager
async def remote_model_server() -> AsyncIterator[RemoteModelServer]:
    """Start the server as a process; it is killed at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.model_server", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        async with ClientSession(timeout=ClientTimeout(total=2 * PATIENCE_S)) as session:
            yield RemoteModelServer(url, session)
    finally:
        process.kill()
        await process.wait()
