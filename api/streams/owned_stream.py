"""The stream of all conversations of a caller: their history by position, then live."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from api.streams import frames
from api.streams.owned_history import history_of
from domain.event_store import STREAM_DELETED
from domain.wire import STREAM, conversation_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.streams.client import StreamClient
    from api.streams.owners import Owners
    from domain.event_store import EventStore, StoredEvent
    from domain.scope import Scope
    from projections.conversations import LogSpan

FRAMES_AT_ONCE = 64


class OwnedStream:
    """What one client is told of its conversations."""

    def __init__(
        self,
        client: StreamClient,
        event_store: EventStore,
        owners: Owners,
        event_frames: frames.EventFrames,
        scope: Scope,
    ) -> None:
        self._client, self._event_store = client, event_store
        self._owners, self._event_frames, self._scope = owners, event_frames, scope

    async def tell_events(self, found: Sequence[LogSpan], after: int, known: int) -> None:
        """Send what these conversations have after a position, up to `known`; then everything as it comes, for ever."""
        ready: list[bytes] = []
        async with aclosing(history_of(self._event_store, found, after, known)) as history:
            async for event in history:
                ready.append(self._event_frames(event))
                if len(ready) == FRAMES_AT_ONCE:
                    await self._client.send(ready)
                    ready.clear()
        await self._client.send(ready)
        await self._follow(max(after, known))

    async def _follow(self, after: int) -> None:
        caught_up = False
        async with aclosing(self._event_store.subscribe(after, prefixes=[STREAM])) as batches:
            async for batch in batches:
                await self._client.send([self._event_frames(e) for e in batch.events if await self._is_own(e)])
                if batch.caught_up and not caught_up:
                    await self._client.send([frames.caught_up("position", batch.position)])
                    caught_up = True

    async def _is_own(self, event: StoredEvent) -> bool:
        conversation_id = conversation_of(event.stream)
        if conversation_id is None or event.type == STREAM_DELETED:
            return False
        return await self._owners.of(conversation_id) == (self._scope.tenant, self._scope.user)
