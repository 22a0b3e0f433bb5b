"""The stream of one conversation: its log from a seq on, then live, with what its model is saying."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from api.streams import frames
from domain.event_store import STREAM_DELETED
from domain.wire import stream_of
from infra.spoken import Spoken

if TYPE_CHECKING:
    from uuid import UUID

    from api.streams.client import StreamClient
    from api.streams.views import View
    from domain.event_store import EventStore
    from infra.live_feed import LiveFeed, LiveNews

WAITING_NEWS = 512
"""A client that lets more deltas wait is cut off."""


class ConversationStream:
    """What one client is told of a conversation."""

    def __init__(
        self,
        client: StreamClient,
        event_store: EventStore,
        live_feed: LiveFeed,
        view: View,
        conversation_id: UUID,
    ) -> None:
        self._client, self._event_store, self._live_feed = client, event_store, live_feed
        self._view, self._conversation_id = view, conversation_id
        self._spoken = Spoken()
        self._caught_up = asyncio.Event()
        self._news: asyncio.Queue[LiveNews] = asyncio.Queue(WAITING_NEWS)

    async def tell_log(self) -> None:
        """Send what the view tells of the log, then of each event as it comes; returns when it is deleted."""
        stream = stream_of(self._conversation_id)
        async with aclosing(self._event_store.subscribe_stream(stream, await self._view.begin())) as batches:
            async for batch in batches:
                for event in batch.events:
                    self._spoken.see(event)
                if batch.events and batch.events[-1].type == STREAM_DELETED:
                    return
                await self._client.send(self._view.tell(batch.events))
                if batch.caught_up and not self._caught_up.is_set():
                    await self._client.send([frames.caught_up("seq", batch.position)])
                    self._caught_up.set()

    async def tell_live(self) -> None:
        """Once history is delivered, send what the model is saying beyond it."""
        await self._caught_up.wait()
        with self._live_feed.watched(self._conversation_id, self._hear):
            while True:
                news = await self._news.get()
                if not self._spoken.known:
                    await self._spoken.look_back(self._event_store, stream_of(self._conversation_id))
                if not self._spoken.covers(news.turn, news.step):
                    await self._client.send([frames.live(news)])

    def _hear(self, news: LiveNews) -> None:
        try:
            self._news.put_nowait(news)
        except asyncio.QueueFull:
            self._client.cut_off()
