"""How a conversation's stream tells its log: as the events themselves, or as the display rows that they change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from api.streams import frames
from domain.events import TurnStarted
from domain.wire import stream_of
from projections.display_messages import DISPLAY_MESSAGES
from projections.event import Event
from projections.messages import item_of
from projections.projection import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from domain.event_store import EventStore, StoredEvent

PAGE = 64


class View(Protocol):
    """What one client is told of the events after its cursor."""

    async def begin(self) -> int:
        """Return the seq after which all events are wanted, in order."""
        ...

    def tell(self, events: Sequence[StoredEvent]) -> Iterator[bytes]:
        """Yield the frames of the next events."""
        ...


class EventView:
    """Tells each event."""

    def __init__(self, after: int, event_frames: frames.EventFrames) -> None:
        self._after, self._event_frames = after, event_frames

    async def begin(self) -> int:
        """Return the cursor."""
        return self._after

    def tell(self, events: Sequence[StoredEvent]) -> Iterator[bytes]:
        """Yield a frame an event."""
        return map(self._event_frames, events)


class MessageView:
    """Tells each row of `display_messages` that an event makes or changes, by the fold that makes the read model.

    Only open rows are kept, those that later events may change: as many as the newest turn has.
    """

    def __init__(self, conversation_id: UUID, after: int, event_store: EventStore) -> None:
        self._conversation_id, self._after, self._event_store = conversation_id, after, event_store
        self._rows = Rows(DISPLAY_MESSAGES, conversation_id)

    async def begin(self) -> int:
        """Find the newest `turn_started` up to the cursor: it answers every message, and no call is open then."""
        stream, before = stream_of(self._conversation_id), self._after + 1
        while before > 1 and (page := await self._event_store.read(stream, before=before, limit=PAGE)):
            for event in reversed(page):
                if event.type == TurnStarted.wire_type:
                    return event.seq
            before = page[0].seq
        return 0

    def tell(self, events: Sequence[StoredEvent]) -> Iterator[bytes]:
        """Yield a frame a row; the last of an event has its seq as id, so that no cursor cuts through an event."""
        for event in events:
            DISPLAY_MESSAGES.fold(self._rows, [Event(event, self._conversation_id)])
            changed = [row for _, row in sorted(self._rows.take_changes().items()) if row is not None]
            if event.seq > self._after:
                for row in changed[:-1]:
                    yield frames.message(item_of(row))
                for row in changed[-1:]:
                    yield frames.message(item_of(row), event.seq)
