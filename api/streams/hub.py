"""All streams of a process: lets clients in, shares the encoded events among them, and ends them at shutdown."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from api.auth import scope_of
from api.queries import read_query
from api.routing import Handler, Route, conversation_id_of
from api.streams.client import KEEP_ALIVE_S, WRITE_S, StreamClient
from api.streams.conversation_stream import ConversationStream
from api.streams.cursor import ConversationStreamQuery, StreamQuery, cursor_of
from api.streams.frames import EventFrames
from api.streams.owned_stream import OwnedStream
from api.streams.owners import Owners
from api.streams.views import EventView, MessageView
from domain.errors import ConversationNotFound
from domain.wire import stream_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from aiohttp import web

    from api.streams.owned_history import OwnedConversations
    from api.streams.views import View
    from commands.conversations import Conversations
    from domain.event_store import EventStore, StoredEvent
    from domain.scope import Scope
    from infra.live_feed import LiveFeed


class StreamHub:
    """The handlers of the stream routes and what they share.

    Append `close` to the application's `on_shutdown`: streams last until their clients go, or it is called.
    """

    def __init__(
        self,
        event_store: EventStore,
        conversations: Conversations,
        live_feed: LiveFeed,
        owned: OwnedConversations,
        *,
        keep_alive_s: float = KEEP_ALIVE_S,
        write_s: float = WRITE_S,
    ) -> None:
        self._event_store, self._conversations = event_store, conversations
        self._live_feed, self._owned = live_feed, owned
        self._owners = Owners(conversations)
        self._keep_alive_s, self._write_s = keep_alive_s, write_s
        self._by_seq, self._by_position = EventFrames(_seq), EventFrames(_position)
        self._clients: set[StreamClient] = set()

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of the streams."""
        return (
            _route("/v1/conversations/{conversation_id}/stream", self.stream_conversation, ConversationStreamQuery),
            _route("/v1/stream", self.stream_own_conversations, StreamQuery),
        )

    async def close(self, _app: web.Application) -> None:
        """End all streams in good order."""
        for client in self._clients:
            client.end()

    async def stream_conversation(self, request: web.Request) -> web.StreamResponse:
        """Follow a conversation: its events after a seq, then live, with what the model is saying.

        Each event has its type as name and its seq as id. With `view=messages` each is told as the messages that it
        makes or changes (`event: message`, as GET …/messages has them), the last of which has the event's id.
        `caught_up` comes once history is delivered; `partial` and `delta` show the reply that is being written.
        """
        asked, conversation_id = read_query(request, ConversationStreamQuery), conversation_id_of(request)
        cursor = cursor_of(request, asked)
        after = cursor.within(await self._newest(conversation_id, scope_of(request)))
        view: View = EventView(after, self._by_seq)
        if asked.view == "messages":
            view = MessageView(conversation_id, after, self._event_store)
        with self._client(request) as client:
            stream = ConversationStream(client, self._event_store, self._live_feed, view, conversation_id)
            return await client.run(stream.tell_log, stream.tell_live)

    async def stream_own_conversations(self, request: web.Request) -> web.StreamResponse:
        """Follow all of the caller's conversations: their events after a position, then live; ids are positions."""
        cursor, scope = cursor_of(request, read_query(request, StreamQuery)), scope_of(request)
        after = cursor.within(await self._event_store.head())
        known, found = await self._owned.owned(scope.tenant, scope.user, after)
        with self._client(request) as client:
            stream = OwnedStream(client, self._event_store, self._owners, self._by_position, scope)
            return await client.run(lambda: stream.tell_events(found, after, known))

    async def _newest(self, conversation_id: UUID, scope: Scope) -> int:
        """Return the seq of the newest event of a conversation that the caller may see."""
        await self._conversations.authorise(conversation_id, scope)
        newest = await self._event_store.read(stream_of(conversation_id), limit=1)
        if not newest:  # whose it was outlives it, in memory
            raise ConversationNotFound("no such conversation")
        return newest[0].seq

    @contextmanager
    def _client(self, request: web.Request) -> Iterator[StreamClient]:
        client = StreamClient(request, keep_alive_s=self._keep_alive_s, write_s=self._write_s)
        self._clients.add(client)
        try:
            yield client
        finally:
            self._clients.discard(client)


def _route(path: str, handler: Handler, query: type[StreamQuery]) -> Route:
    return Route(method="GET", path=path, handler=handler, query=query, media_type="text/event-stream", stream=True)


def _seq(event: StoredEvent) -> int:
    return event.seq


def _position(event: StoredEvent) -> int:
    return event.position
