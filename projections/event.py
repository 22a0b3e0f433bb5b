"""An event of a conversation as folds see it: plain JSON values, and the domain's event when one asks for it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from domain.events import EVENT_TYPES
from domain.upcasts import upcast
from domain.wire import conversation_of, decode

if TYPE_CHECKING:
    from uuid import UUID

    from domain.event_store import StoredEvent
    from domain.events import ConversationEvent


class Event:
    """One event, its JSON read: `data` in the newest shape of its type. Shared by folds, so none changes it."""

    __slots__ = (
        "_decoded",
        "_stored",
        "conversation_id",
        "data",
        "event_id",
        "metadata",
        "occurred_at",
        "position",
        "seq",
        "type",
    )

    def __init__(self, stored: StoredEvent, conversation_id: UUID) -> None:
        self.conversation_id = conversation_id
        self.seq, self.position = stored.seq, stored.position
        self.type, self.event_id = stored.type, stored.event_id
        self.metadata: dict[str, Any] = from_json(stored.metadata)
        self.data: dict[str, Any] = upcast(stored.type, self.metadata.get("schema_version", 1), from_json(stored.data))
        self.occurred_at = datetime.fromisoformat(self.metadata["occurred_at"])
        self._stored = stored
        self._decoded: ConversationEvent | None = None

    @property
    def decoded(self) -> ConversationEvent:
        """The domain's event."""
        if self._decoded is None:
            self._decoded = decode(self._stored)
        return self._decoded

    @property
    def is_copy(self) -> bool:
        """Whether a fork copied it from another conversation, where what it cost was counted."""
        return "copied_from" in self.metadata


def read_event(stored: StoredEvent) -> Event | None:
    """Read a stored event; None for one of another kind of stream or of a type that this code does not know."""
    conversation_id = conversation_of(stored.stream)
    if conversation_id is None or stored.type not in EVENT_TYPES:
        return None
    return Event(stored, conversation_id)
