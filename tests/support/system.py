"""The whole of Rejoinder for a test: all roles over a real database, a scripted model server, an HTTP client."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import aiohttp
import pytest

from api.app import ROLES, running
from infra.litellm_library import load_litellm
from infra.settings import load_settings
from tests.support import agent_tools
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection

    from tests.support.model_server import ModelServer

Event = dict[str, Any]


@dataclass(frozen=True)
class Conversation:
    """A conversation, as its client has it."""

    system: System
    id: str

    @property
    def path(self) -> str:
        """Its path."""
        return f"/v1/conversations/{self.id}"

    async def say(self, text: str, **fields: Any) -> Any:
        """Send a message and return the answer."""
        return await self.system.post(f"{self.path}/messages", {"content": text, **fields}, status=202)

    async def resolve(self, tool_call_id: str, outcome: str, *, status: int = 200, **fields: Any) -> Any:
        """Decide a pending tool call."""
        path = f"{self.path}/tool-calls/{tool_call_id}/resolution"
        return await self.system.post(path, {"outcome": outcome, **fields}, status=status)

    async def events(self) -> list[Event]:
        """Return the whole log."""
        answer = await self.system.get(f"{self.path}/events?oldest=true&limit=200")
        return list(answer["items"])

    async def shown(self, what: str = "", **query: Any) -> Any:
        """Return what a read model of it, such as ``messages`` (none: the conversation itself), shows of the log as
        it is now; of a list the first page.
        """
        [newest] = (await self.system.get(f"{self.path}/events?limit=1"))["items"]
        asked = urlencode({**query, "min_position": newest["position"]})
        return await self.system.get(f"{self.path}{what and '/'}{what}?{asked}")

    async def until(self, holds: Callable[[list[Event]], bool]) -> list[Event]:
        """Follow the stream until the events so far satisfy a condition, and return them."""
        seen: list[Event] = []
        async with asyncio.timeout(PATIENCE_S):
            async for event in self.stream():
                seen.append(event)
                if holds(seen):
                    return seen
        raise AssertionError("the stream ended")

    async def turn_ends(self, turns: int = 1) -> list[Event]:
        """Wait until so many turns have ended."""
        return await self.until(lambda seen: types(seen).count("turn_ended") >= turns)

    async def suspends(self, calls: int = 1) -> list[Event]:
        """Wait until so many suspensions were recorded."""
        return await self.until(lambda seen: types(seen).count("suspension") >= calls)

    async def stream(self) -> AsyncGenerator[Event, None]:
        """Follow the log by SSE, history first; extras without a number are left out."""
        async with self.system.session.get(self.system.url + self.path + "/stream") as response:
            assert response.status == 200
            async for line in response.content:
                if line.startswith(b"data: ") and '"seq"' in (text := line[6:].decode()):
                    event = json.loads(text)
                    if "type" in event:
                        yield event


@dataclass(frozen=True)
class System:
    """A running process and a way to call it."""

    url: str
    session: aiohttp.ClientSession

    async def start(self, message: str | None = None, **settings: Any) -> Conversation:
        """Create a conversation, with a first message if there is one."""
        body = {"settings": settings, **({"message": {"content": message}} if message else {})}
        answer = await self.post("/v1/conversations", body, status=201)
        return Conversation(self, answer["conversation_id"])

    async def post(self, path: str, body: Any, *, status: int, **arguments: Any) -> Any:
        """Post a body and return the JSON of an answer of that status."""
        async with self.session.post(self.url + path, json=body, **arguments) as response:
            text = await response.text()
            assert response.status == status, text
            return json.loads(text)

    async def get(self, path: str, *, status: int = 200) -> Any:
        """Get the JSON of an answer of that status; who is told to come again does, but where that is awaited."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                async with self.session.get(self.url + path) as response:
                    text = await response.text()
                if response.status == status:
                    return json.loads(text)
                assert response.status == 503, text
                await asyncio.sleep(float(response.headers["Retry-After"]))


def types(events: list[Event]) -> list[str]:
    """Return the types of events."""
    return [event["type"] for event in events]


def of_type(events: list[Event], wire_type: str) -> list[Event]:
    """Return the data of the events of a type."""
    return [event["data"] for event in events if event["type"] == wire_type]


@asynccontextmanager
async def system_over(
    database_url: str, model_server: ModelServer, roles: Collection[str] = ROLES, **settings: Any
) -> AsyncIterator[System]:
    """Run these roles in this process; the url is empty without the api."""
    given = {
        "database_url": database_url,
        "port": 0,
        "model": "openai/scripted",
        "model_api_base": model_server.url,
        "model_api_key": "sk-scripted",
        "tools": ("tests.support.agent_tools",),
    }
    if "worker" in roles:
        await asyncio.to_thread(load_litellm)  # else whoever waits for the first answer waits for it too
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(running(load_settings(**(given | settings)), roles))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield System(url or "", session)


@pytest.fixture
async def system(database_url: str, model_server: ModelServer) -> AsyncIterator[System]:
    """All roles in one process."""
    agent_tools.forget()
    async with system_over(database_url, model_server) as running_system:
        yield running_system
