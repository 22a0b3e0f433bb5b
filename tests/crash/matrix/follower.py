"""A page that watches the conversation: it reads a stream, and reads on by its cursor whenever that breaks off."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from tests.crash.matrix.person import Front

AGAIN_S = 0.02
UNBOUNDED = aiohttp.ClientTimeout(total=None, sock_connect=5)


class Follower:
    """Follows one view of a conversation; `seqs` are the numbers of its frames, `rows` the newest of each message."""

    def __init__(self, session: aiohttp.ClientSession, front: Front, path: str, view: str) -> None:
        self.view = view
        self.seqs: list[int] = []
        self.rows: dict[str, dict[str, Any]] = {}
        self._session, self._front, self._path = session, front, path

    @property
    def seq(self) -> int:
        """The cursor."""
        return self.seqs[-1] if self.seqs else 0

    async def follow(self) -> None:
        """Read for ever."""
        while True:
            url = f"{await self._front.url()}{self._path}?view={self.view}"
            try:
                headers = {"Last-Event-ID": str(self.seq)}
                async with self._session.get(url, headers=headers, timeout=UNBOUNDED) as response:
                    if response.status == 200:
                        await self._read(response)
            except (aiohttp.ClientError, OSError):
                pass  # whoever told it was killed
            await asyncio.sleep(AGAIN_S)

    async def _read(self, response: aiohttp.ClientResponse) -> None:
        frame: dict[str, str] = {}
        async for line in response.content:
            field, _, value = line.decode().rstrip("\n").partition(": ")
            if field:
                frame[field] = value
            else:
                self._take(frame)
                frame = {}

    def _take(self, frame: dict[str, str]) -> None:
        if frame.get("event") == "message":
            row = json.loads(frame["data"])
            self.rows[row["id"]] = row
        if "id" in frame:
            self.seqs.append(int(frame["id"]))
