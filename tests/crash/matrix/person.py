"""Who finishes a scenario from outside: sends commands until they are acknowledged, and reads the log."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import aiohttp

from domain import events
from domain.summary_events import SummaryRecorded
from domain.wire import decode, stream_of, summary_stream_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from domain.event_envelope import ConversationEvent
    from domain.event_store import EventStore, StoredEvent

AGAIN_S = 0.02


class Refused(AssertionError):
    """A command was answered otherwise than it should be."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A command that was answered; `tries` counts how often it was sent, always under one key."""

    path: str
    status: int
    answer: dict[str, Any]
    tries: int


class Front:
    """Where the api listens now, if it does."""

    def __init__(self) -> None:
        self._url: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def opens(self, url: str) -> None:
        """Say where it listens."""
        if not self._url.done():
            self._url.set_result(url)

    def closes(self) -> None:
        """Say that it is gone."""
        if self._url.done():
            self._url = asyncio.get_running_loop().create_future()

    async def url(self) -> str:
        """Wait until it listens."""
        return await asyncio.shield(self._url)


class Person:
    """The one user of a run's conversation. `log` is what they have read so far, in order."""

    def __init__(self, run: str, store: EventStore, session: aiohttp.ClientSession, front: Front) -> None:
        self.id = uuid4()
        self.acknowledged: list[Acknowledged] = []
        self.stored: list[StoredEvent] = []
        self.log: list[ConversationEvent] = []
        self._run, self._store, self._session, self._front = run, store, session, front
        self._read = asyncio.Condition()
        self._sent = 0

    async def follow(self) -> None:
        """Read the log for ever."""
        async for batch in self._store.subscribe_stream(stream_of(self.id), 0):
            self.stored += batch.events
            self.log += map(decode, batch.events)
            await self.stir()

    async def stir(self) -> None:
        """Look again at what is waited for."""
        async with self._read:
            self._read.notify_all()

    async def until(self, holds: Callable[[], Any]) -> Any:
        """Wait until something is true of what was read, and return it."""
        async with self._read:
            return await self._read.wait_for(holds)

    async def start(self, text: str, **settings: Any) -> None:
        """Begin the conversation with a message."""
        body = {"id": str(self.id), "settings": settings, "message": {"content": text}}
        await self.post("/v1/conversations", body, status=201)

    async def say(self, text: str, *, status: int = 202, **fields: Any) -> Acknowledged:
        """Send a message."""
        return await self._command("messages", {"content": text, **fields}, status=status)

    async def resolve(self, tool_call_id: str, outcome: str, *, status: int = 200, **fields: Any) -> Acknowledged:
        """Decide a call."""
        return await self._command(f"tool-calls/{tool_call_id}/resolution", {"outcome": outcome, **fields}, status)

    async def cancel(self) -> Acknowledged:
        """Stop the turn."""
        return await self._command("cancel", {}, status=202)

    async def compact(self) -> Acknowledged:
        """Ask for a summary."""
        return await self._command("compact", {}, status=202)

    async def revoke(self, to_seq: int) -> Acknowledged:
        """Take a summary back."""
        return await self._send("DELETE", f"{self.path}/summaries/{to_seq}", {}, 200)

    async def summarised(self, times: int = 1) -> list[SummaryRecorded]:
        """Wait until so many summaries were recorded, and return them."""
        while True:
            found = [decode(event) for event in await self._store.read(summary_stream_of(self.id))]
            made = [event for event in found if isinstance(event, SummaryRecorded)]
            if len(made) >= times:
                return made
            await asyncio.sleep(AGAIN_S)

    async def end(self) -> Acknowledged:
        """End the conversation."""
        return await self._command("end", {}, status=200)

    @property
    def path(self) -> str:
        """The conversation's path."""
        return f"/v1/conversations/{self.id}"

    async def messages(self) -> dict[str, dict[str, Any]]:
        """Read what people see, by the ids of the rows."""
        while True:
            url = f"{await self._front.url()}{self.path}/messages?after_seq=0&limit=200"
            try:
                async with self._session.get(url) as response:
                    if response.status == 200:
                        return {row["id"]: row for row in (await response.json())["items"]}
            except (aiohttp.ClientError, OSError):
                pass  # it was killed
            await asyncio.sleep(AGAIN_S)

    async def turns(self, number: int) -> None:
        """Wait until so many turns have ended."""
        await self.until(lambda: len(self.of(events.TurnEnded)) >= number)

    async def asked(self, tool: str, calls: int = 1, *, kind: str | None = None) -> Sequence[events.ToolCall]:
        """Wait until so many calls of a tool have been suspended (for this kind of answer), and return them."""

        def suspended() -> list[events.ToolCall]:
            waiting = {s.tool_call_id for s in self.of(events.Suspension) if kind in (None, s.kind)}
            return [call for call in self.of(events.ToolCall) if call.name == tool and call.tool_call_id in waiting]

        await self.until(lambda: len(suspended()) >= calls)
        return suspended()

    def of(self, event_type: type[Any]) -> list[Any]:
        """Return the events of a type that were read so far."""
        return [event for event in self.log if isinstance(event, event_type)]

    async def post(self, path: str, body: dict[str, Any], status: int) -> Acknowledged:
        """Send a command, as `_send` does."""
        return await self._send("POST", path, body, status)

    async def _send(self, method: str, path: str, body: dict[str, Any], status: int) -> Acknowledged:
        """Send a command under a key of its own until it is answered, by whatever process.

        Raises `Refused` for another status.
        """
        self._sent += 1
        headers, tries = {"Idempotency-Key": f"{self._run}-{self._sent}"}, 0
        while True:
            url, tries = await self._front.url(), tries + 1
            try:
                async with self._session.request(method, url + path, json=body, headers=headers) as response:
                    text = await response.text()
                    if response.status != 503:
                        break
            except (aiohttp.ClientError, OSError, TimeoutError):
                pass  # whoever was asked was killed, or will be seen to have been: the next one is asked
            await asyncio.sleep(AGAIN_S)
        if response.status != status:
            raise Refused(f"{path} {body}: {response.status} {text} (sent {tries} times)")
        answer = Acknowledged(path, response.status, await response.json(), tries)
        self.acknowledged.append(answer)
        return answer

    async def _command(self, path: str, body: dict[str, Any], status: int) -> Acknowledged:
        return await self.post(f"{self.path}/{path}", body, status)
