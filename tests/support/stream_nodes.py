"""Nodes that serve streams over one database, clients that read them, and a way to write to the log by hand."""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import aiohttp

from api.http import build_app
from api.resources import Resources
from api.server import listening
from api.streams.hub import StreamHub
from commands.conversations import Conversations
from domain.event_store import NewEvent
from domain.tools import Toolset
from domain.wire import dumps, stream_of
from infra.clock import Clock
from infra.database import Database
from infra.keys import ApiKeys, KeyEntry
from infra.leases import Leases
from infra.live_feed import LiveFeed
from infra.live_turns import PostgresLiveTurns
from infra.owned_conversations import PostgresOwnedConversations
from infra.postgres_event_store import PostgresEventStore
from infra.settings import Settings
from projections.conversations import CONVERSATIONS
from projections.positions import Positions
from projections.projector import Projector
from projections.schema import ensure_schema
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from uuid import UUID

    from commands.ports import KnownCommand
    from domain.event_store import Appended, EventStore

CALLERS = {"ada": ("acme", "ada"), "bob": ("acme", "bob"), "root": ("acme", "root"), "eve": ("evil", "ada")}


class _NoWorkers:
    async def wake(self, conversation_id: UUID) -> None:
        """Nobody to wake."""

    async def find(self, conversation_id: UUID, command_id: UUID, *, up_to_position: int) -> KnownCommand | None:
        return None


class Node:
    """A process that serves streams."""

    def __init__(
        self, url: str, event_store: PostgresEventStore, live: PostgresLiveTurns, session: aiohttp.ClientSession
    ) -> None:
        self.url, self.event_store, self.live, self.session = url, event_store, live, session

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        by: str = "ada",
        after: object = None,
        last_event_id: str | None = None,
        view: str | None = None,
    ) -> AsyncIterator[SseReader]:
        """Open a stream and read it."""
        headers = {"Authorization": f"Bearer {by}"} | ({"Last-Event-ID": last_event_id} if last_event_id else {})
        query = ({} if after is None else {"after": str(after)}) | ({} if view is None else {"view": view})
        async with self.session.get(self.url + path, headers=headers, params=query) as response:
            yield SseReader(response)

    def follow(self, conversation: Log, **how: Any) -> Any:
        """Open the stream of a conversation."""
        return self.stream(f"/v1/conversations/{conversation.id}/stream", **how)


@asynccontextmanager
async def node(dsn: str, **how: float) -> AsyncIterator[Node]:
    """Serve with connections of its own; `how` goes to the hub."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(PostgresEventStore(dsn))
        database = await stack.enter_async_context(Database(dsn, max_connections=4))
        async with database.connection() as connection:
            await ensure_schema(connection, [CONVERSATIONS])
        clock = await stack.enter_async_context(Clock(database))
        live = await stack.enter_async_context(PostgresLiveTurns(database))
        feed = await stack.enter_async_context(LiveFeed(database))
        conversations = Conversations(store, clock, _NoWorkers(), _NoWorkers())
        how = {"keep_alive_s": PATIENCE_S * 5} | how  # or who is slow sees comments among the events
        hub = StreamHub(store, conversations, feed, PostgresOwnedConversations(database), **how)
        resources = Resources(Settings(), _keys(), store, database, conversations, live, Toolset([]))
        app = build_app(resources, hub.routes())
        app.on_shutdown.append(hub.close)
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), read_bufsize=2**22)
        )
        url = await stack.enter_async_context(listening(app, "127.0.0.1", 0, drain_s=PATIENCE_S))
        yield Node(url, store, live, session)


async def project(dsn: str) -> None:
    """Bring the read model `conversations` up to the log's head, once."""
    async with PostgresEventStore(dsn) as store, Database(dsn, max_connections=4) as database:
        projector = asyncio.create_task(Projector(store, database, Leases(database), [CONVERSATIONS]).run())
        assert await Positions(database).wait(["conversations"], await store.head(), PATIENCE_S)
        projector.cancel()
        await asyncio.gather(projector, return_exceptions=True)


def _keys() -> ApiKeys:
    return ApiKeys(
        KeyEntry(
            key_sha256=hashlib.sha256(name.encode()).hexdigest(),
            tenant=tenant,
            user=user,
            roles=frozenset({"admin"} if name == "root" else ()),
        )
        for name, (tenant, user) in CALLERS.items()
    )


class SseReader:
    """Reads Server-Sent Events as the standard says, comments too (as events named ``:``)."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.seen: list[dict[str, Any]] = []

    async def next(self) -> dict[str, Any] | None:
        """Return the next event with its name, id (None for none) and data, None at the end."""
        fields: dict[str, Any] = {"id": None}
        while line := (await self.response.content.readline()).decode():
            if line == "\n":
                self.seen.append(fields)
                return fields
            name, _, value = line.rstrip("\n").partition(":")
            if not name:
                fields["event"] = ":"
            else:
                fields[name] = json.loads(value) if name == "data" else value.removeprefix(" ")
        return None

    async def until(self, name: str, **data: Any) -> dict[str, Any]:
        """Read on to the next event of a name with this data."""
        while (event := await self.next()) is not None:
            if event["event"] == name and data.items() <= event["data"].items():
                return event
        raise AssertionError(f"the stream ended without {name} {data}: {self.seen}")

    async def until_said(self, text: str) -> None:
        """Read on until what the model is saying is this."""
        async with asyncio.timeout(PATIENCE_S):
            while self.said != text:
                assert await self.next() is not None, f"the stream ended at {self.said!r}"

    async def rest(self) -> list[dict[str, Any]]:
        """Read to the end."""
        return [event async for event in aiter_until_none(self)]

    @property
    def seqs(self) -> list[int]:
        """The seqs of the logged events that were seen, in order."""
        return [event["data"]["seq"] for event in self.seen if event["id"] is not None]

    @property
    def said(self) -> str:
        """What the model is saying, by its partials and deltas."""
        text = ""
        for event in self.seen:
            if event["event"] in ("partial", "delta") and event["data"]["kind"] == "text":
                text = event["data"]["text"] if event["event"] == "partial" else text + event["data"]["text"]
        return text

    @property
    def names(self) -> list[str]:
        """The names of what was seen, in order."""
        return [event["event"] for event in self.seen]


async def aiter_until_none(reader: SseReader) -> AsyncIterator[dict[str, Any]]:
    """Iterate over what a reader has left."""
    while (event := await reader.next()) is not None:
        yield event


class Log:
    """Writes a conversation's log by hand."""

    def __init__(self, event_store: EventStore, owner: str = "ada", tenant: str = "acme") -> None:
        self.id, self.seq, self.position = uuid4(), 0, 0
        self.owner, self._event_store, self._tenant = owner, event_store, tenant
        self._writing = asyncio.Lock()

    async def start(self) -> Log:
        """Append event 1."""
        await self.add("conversation_started", tenant=self._tenant, owner=self.owner, settings={}, metadata={})
        return self

    async def add(self, event_type: str, **data: Any) -> Appended:
        """Append an event."""
        return await self.add_all([(event_type, data)])

    async def add_all(self, events: Sequence[tuple[str, dict[str, Any]]]) -> Appended:
        """Append events together."""
        async with self._writing:
            new = [_new(event_type, data) for event_type, data in events]
            appended = await self._event_store.append(stream_of(self.id), new, self.seq)
            self.seq, self.position = appended
            return appended

    async def say(self, text: str = "hello") -> Appended:
        """Append a message."""
        return await self.add("user_msg", message_id=f"m{self.seq}", content=[{"type": "text", "text": text}])

    async def reply(self, turn: int, step: int = 1, *, context_seq: int = 1, ends: bool = True) -> Appended:
        """Append the reply of a step, and with it the end of its turn."""
        said = {"turn": turn, "attempt": 1, "step": step, "content": [], "model": "m", "finish_reason": "stop"}
        reply = ("assistant_msg", {**said, "context_seq": context_seq})
        return await self.add_all([reply, ("turn_ended", {"turn": turn, "outcome": "completed"})] if ends else [reply])


def _new(event_type: str, data: dict[str, Any]) -> NewEvent:
    event_id = uuid4()
    metadata = {
        "event_id": str(event_id),
        "occurred_at": datetime.now(UTC).isoformat(),
        "actor": {"kind": "user", "id": "ada"},
        "schema_version": 1,
    }
    return NewEvent(event_id, event_type, dumps(data), dumps(metadata))
