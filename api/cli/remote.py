"""A server of Rejoinder as a client sees it: commands that survive its restart, and streams that come back."""

from __future__ import annotations

import asyncio
import json
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import aiohttp

from api.cli.failures import WRONG_USAGE, CommandFailed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping
    from uuid import UUID

PATIENCE_S = 30.0
"""So long a command is tried again while its server is away."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
SILENCE_S = 45.0
"""A stream says something every 15 seconds, if only that it is there."""

LOST = "lost"
"""The name of what `Remote.follow` yields when a connection broke."""


class Refused(Exception):
    """The server understood and said no; the message is its reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Said(NamedTuple):
    """One thing that a stream said."""

    name: str
    data: Mapping[str, Any]


class Remote:
    """A server by its URL, called under a key."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str | None) -> None:
        self._session, self._url = session, url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def greet(self) -> None:
        """Look whether a server is there and takes the key; raises `CommandFailed`.

        One whose list of conversations is away for the moment is a server all the same.
        """
        try:
            await self._once("GET", "/v1/conversations?limit=1")
        except Refused as refused:
            if refused.status == HTTPStatus.SERVICE_UNAVAILABLE:
                return
            if refused.status == HTTPStatus.UNAUTHORIZED:
                raise CommandFailed(
                    f"{self._url} does not know this key: give one by --key or REJOINDER_API_KEY", WRONG_USAGE
                ) from refused
            raise CommandFailed(f"{self._url} does not answer as Rejoinder does: {refused}") from refused
        except (aiohttp.InvalidURL, ValueError) as error:
            raise CommandFailed(f"{self._url} is no URL such as http://127.0.0.1:8400", WRONG_USAGE) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise CommandFailed(
                f"no server listens on {self._url}: start one with `rejoinder serve`, or name another by --url"
            ) from error

    async def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Call and return the JSON answer; tried again, as one and the same command, while the server is away.

        Raises `Refused`, `CommandFailed` after `PATIENCE_S`.
        """
        deadline = time.monotonic() + PATIENCE_S
        pause = FIRST_PAUSE_S
        command_id = str(uuid4())
        while True:
            try:
                return await self._once(method, path, body, command_id)
            except Refused as refused:
                if refused.status != HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > deadline:
                    raise
            except (aiohttp.ClientError, TimeoutError) as error:
                if time.monotonic() > deadline:
                    raise CommandFailed(f"the server on {self._url} does not answer any more") from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def follow(self, conversation_id: UUID, after: int) -> AsyncGenerator[Said, None]:
        """Yield what the conversation's stream says after a seq, for ever; `LOST` whenever its connection broke.

        Raises `Refused`.
        """
        pause = FIRST_PAUSE_S
        while True:
            try:
                async for said in self._follow_once(conversation_id, after):
                    pause = FIRST_PAUSE_S
                    after = said.data.get("seq", after)
                    yield said
            except (aiohttp.ClientError, TimeoutError):
                pass  # the same to who follows as a stream that ended
            except Refused as refused:
                if refused.status != HTTPStatus.SERVICE_UNAVAILABLE:
                    raise
            yield Said(LOST, {})
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _once(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, command_id: str | None = None
    ) -> Any:
        headers = dict(self._headers)
        if command_id and method == "POST":
            headers["Idempotency-Key"] = command_id
        async with self._session.request(method, self._url + path, json=body, headers=headers) as response:
            if response.status >= 400:
                raise await _refused(response)
            return await response.json() if response.content_type == "application/json" else None

    async def _follow_once(self, conversation_id: UUID, after: int) -> AsyncIterator[Said]:
        async with self._session.get(
            f"{self._url}/v1/conversations/{conversation_id}/stream?after={after}",
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=SILENCE_S),
        ) as response:
            if response.status >= 400:
                raise await _refused(response)
            waiting = b""
            async for chunk in response.content.iter_any():
                *frames, waiting = (waiting + chunk).split(b"\n\n")
                for frame in frames:
                    if said := parse_frame(frame.decode()):
                        yield said


def parse_frame(frame: str) -> Said | None:
    """Return what a frame of Server-Sent Events says, None for a comment."""
    name, data = "message", []
    for line in frame.split("\n"):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
    return Said(name, json.loads("\n".join(data))) if data else None


async def _refused(response: aiohttp.ClientResponse) -> Refused:
    try:
        problem = await response.json(content_type=None)
        faults = "; ".join(f"{fault['field']}: {fault['message']}" for fault in problem.get("errors", ()))
        reason = faults or problem.get("detail") or problem["title"]
    except (ValueError, TypeError, KeyError, AttributeError):
        reason = f"status {response.status}"
    return Refused(response.status, str(reason))
