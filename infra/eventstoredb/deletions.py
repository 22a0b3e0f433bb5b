"""Which streams were deleted, by a stream of our own: `$all` shows their events until the server is scavenged."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from domain.event_store import STREAM_DELETED, NewEvent, StreamMoved

if TYPE_CHECKING:
    from domain.event_store import EventStore, StoredEvent

LEDGER = "rejoinder-deleted"
"""The stream that names deleted streams; no read of several streams shows it."""
PAGE_EVENTS = 1_000


class Deletions:
    """The deleted streams, each with the position of its entry in the ledger, which precedes its tombstone.

    Every process reads the ledger once, then only what is new in it: a small read beside each page of `$all`.
    """

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._entries: dict[str, int] = {}
        self._seq = 0

    def shows(self, event: StoredEvent) -> bool:
        """Say whether readers of several streams may see an event: not the ledger, and of the deleted their end."""
        return event.stream != LEDGER and (event.stream not in self._entries or event.type == STREAM_DELETED)

    def position(self, stream: str) -> int:
        """Return a position before the stream's tombstone."""
        return self._entries.get(stream, 0)

    async def refresh(self) -> None:
        """Learn of every deletion that was acknowledged before the call."""
        full = True
        while full:
            page = await self._store.read(LEDGER, after=self._seq, limit=PAGE_EVENTS, first=True)
            for entry in page:
                self.learn(entry)
            full = len(page) == PAGE_EVENTS

    def learn(self, entry: StoredEvent) -> None:
        """Take in an event of the ledger."""
        self._entries.setdefault(json.loads(entry.data)["stream"], entry.position)
        self._seq = max(self._seq, entry.seq)

    async def add(self, stream: str) -> None:
        """Name a stream in the ledger, unless it is there."""
        entry = NewEvent(uuid4(), "stream_deleted", json.dumps({"stream": stream}), "{}")
        await self.refresh()
        while stream not in self._entries:
            with suppress(StreamMoved):  # somebody else deletes, too
                await self._store.append(LEDGER, [entry], self._seq)
            await self.refresh()
