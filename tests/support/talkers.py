"""People who talk through outages: they repeat what was not accepted, and follow the stream by its cursor."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import aiohttp

from tests.support.system import Conversation, System, types

if TYPE_CHECKING:
    from tests.support.system import Event

LOOK_AGAIN_S = 0.1


class Talker:
    """Somebody with a conversation, who waits for each answer before saying more."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.system = System(url, session)
        self.seen: list[Event] = []
        self.said: list[str] = []
        self.put_off = 0
        self.connected = 0
        self._heard = asyncio.Condition()
        self.conversation = Conversation(self.system, str(uuid4()))

    async def talk(self, done: asyncio.Event) -> None:
        """Talk until told to be done, and wait for the last answer."""
        await self._accepted("/v1/conversations", {"id": self.conversation.id}, 201)
        following = asyncio.create_task(self._follow())
        try:
            while not done.is_set() or not self.said:
                message_id = f"msg_{uuid4().hex}"
                body = {"content": f"Message {len(self.said)}", "message_id": message_id}
                await self._accepted(f"{self.conversation.path}/messages", body, 202)
                self.said.append(message_id)
                async with self._heard:
                    await self._heard.wait_for(lambda: types(self.seen).count("turn_ended") == len(self.said))
        finally:
            following.cancel()
            await asyncio.wait([following])

    async def _accepted(self, path: str, body: dict[str, Any], status: int) -> None:
        """Send it until it is accepted: 503 says when to try again, and a lost connection says nothing."""
        headers = {"Idempotency-Key": str(uuid4())}
        while True:
            with suppress(aiohttp.ClientConnectionError):
                url = self.system.url + path
                async with self.system.session.post(url, json=body, headers=headers) as response:
                    if response.status == status:
                        return
                    assert response.status == 503, await response.text()
                    assert int(response.headers["Retry-After"]) >= 0
            self.put_off += 1
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _follow(self) -> None:
        while True:
            with suppress(aiohttp.ClientError, TimeoutError):
                await self._follow_once()
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _follow_once(self) -> None:
        headers = {"Last-Event-ID": str(self.seen[-1]["seq"])} if self.seen else {}
        url = f"{self.system.url}{self.conversation.path}/stream"
        async with self.system.session.get(url, headers=headers) as response:
            if response.status != 200:
                assert response.status == 503, await response.text()
                return
            self.connected += 1
            async for line in response.content:
                if line.startswith(b"data: ") and "type" in (event := json.loads(line[6:])):
                    async with self._heard:
                        self.seen.append(event)
                        self._heard.notify_all()
