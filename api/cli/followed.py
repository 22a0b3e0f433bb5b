"""A conversation that is followed by its stream: folded by the same rules as on the server, shown as it comes."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from api.cli.failures import CommandFailed
from api.cli.remote import LOST, Refused
from domain.conversation import Conversation
from domain.errors import UnknownEventType
from domain.event_store import StoredEvent
from domain.wire import decode, stream_of

if TYPE_CHECKING:
    from api.cli.remote import Remote
    from api.cli.transcript import Transcript
    from domain.conversation_state import OpenCall

PAGE = 200
LIVE = ("delta", "partial")


class Followed:
    """A conversation from ``async with`` on, where its newest events are loaded and shown."""

    def __init__(self, remote: Remote, transcript: Transcript, conversation_id: UUID) -> None:
        self._remote, self._transcript, self.conversation_id = remote, transcript, conversation_id
        self._state = Conversation.at(conversation_id)
        self._changed = asyncio.Event()
        self._caught_up = False
        self._following: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Load and show; raises `CommandFailed` if there is no such conversation for this caller."""
        try:
            await self._load()
        except Refused as refused:
            raise CommandFailed(f"conversation {self.conversation_id}: {refused}") from refused
        self._following = asyncio.create_task(self._follow(), name="following")
        self._following.add_done_callback(lambda _: self._changed.set())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])

    @property
    def question(self) -> OpenCall | None:
        """The call that has waited longest for an answer, as it stands now."""
        return next((replace(call) for call in self._state.calls.values() if call.question), None)

    def asks(self, call: OpenCall) -> bool:
        """Say whether this call still waits for the answer to the question that it had."""
        current = self._state.calls.get(call.tool_call_id)
        return bool(current and current.question and call.question and current.question.kind == call.question.kind)

    async def rested(self, seq: int) -> None:
        """Wait until everything up to a seq was shown and the agent is done, or asks; raises what ended the stream."""
        while not (self._caught_up and self._state.version >= seq and (self.question or not self._state.busy)):
            if self._following is not None and self._following.done():
                return self._following.result()
            self._changed.clear()
            await self._changed.wait()
        return None

    async def _load(self) -> None:
        """Take the newest events back to where a turn started: what is open is what they say."""
        path = f"/v1/conversations/{self.conversation_id}/events?limit={PAGE}"
        page = await self._remote.call("GET", path)
        found = page["items"]
        while page["next_cursor"] and not any(event["type"] == "turn_started" for event in found):
            page = await self._remote.call("GET", f"{path}&before={page['next_cursor']}")
            found = page["items"] + found
        if page["next_cursor"]:
            self._transcript.note(f"(what came before is shown by: rejoinder events {self.conversation_id})")
            while found[0]["type"] != "turn_started":
                del found[0]
            self._state = Conversation.at(self.conversation_id, found[0]["seq"] - 1)
        for event in found:
            self._take(event)

    async def _follow(self) -> None:
        lost = False
        try:
            async with aclosing(self._remote.follow(self.conversation_id, self._state.version)) as stream:
                async for said in stream:
                    if said.name == LOST:
                        if not lost:
                            self._transcript.note("(the connection is lost, trying again)")
                        lost = True
                        continue
                    lost = False
                    if said.name == "caught_up":
                        self._caught_up = True
                    elif said.name in LIVE:
                        self._transcript.live(said.name, said.data)
                    elif "seq" in said.data:
                        self._take(said.data)
                    self._changed.set()
        except Refused as refused:
            raise CommandFailed(f"conversation {self.conversation_id}: {refused}") from refused

    def _take(self, item: Any) -> None:
        if item["seq"] <= self._state.version:
            return
        try:
            event = decode(_stored(self.conversation_id, item))
        except UnknownEventType as unknown:
            raise CommandFailed(f"the server is newer than this program, which does not know {unknown}") from unknown
        self._state.fold([event])
        self._transcript.event(event)


def _stored(conversation_id: UUID, item: Any) -> StoredEvent:
    return StoredEvent(
        stream_of(conversation_id),
        item["seq"],
        item["position"],
        UUID(item["metadata"]["event_id"]),
        item["type"],
        json.dumps(item["data"]),
        json.dumps(item["metadata"]),
    )
