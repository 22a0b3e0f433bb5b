"""An event of a conversation as folds see it: plain JSON values, and the domain's event when one asks for it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from domain.upcasts import upcast
from domain.wire import decode_parsed

if TYPE_CHECKING:
    from uuid import UUID

    from domain.event_envelope import ConversationEvent
    from domain.event_store import StoredEvent


class Event:
    """One event, shared by all folds, so none may change it; its JSON is read when first asked for.

    What cannot be read raises there, in the fold: so it stops that conversation and not the reader of the log.
    """

    __slots__ = ("_data", "_decoded", "_metadata", "_occurred_at", "_stored", "conversation_id", "seq", "type")

    def __init__(self, stored: StoredEvent, conversation_id: UUID) -> None:
        self.conversation_id = conversation_id
        self.seq, self.type = stored.seq, stored.type
        self._stored = stored
        self._data: dict[str, Any] | None = None
        self._metadata: dict[str, Any] | None = None
        self._occurred_at: datetime | None = None
        self._decoded: ConversationEvent | None = None

    @property
    def stored(self) -> StoredEvent:
        """The event as the store has it."""
        return self._stored

    @property
    def position(self) -> int:
        """The event's place in the whole log."""
        return self._stored.position

    @property
    def event_id(self) -> UUID:
        """The event's id."""
        return self._stored.event_id

    @property
    def data(self) -> dict[str, Any]:
        """The event's own fields, in the newest shape of its type."""
        if self._data is None:
            self._data = upcast(self.type, self.metadata.get("schema_version", 1), from_json(self._stored.data))
        return self._data

    @property
    def metadata(self) -> dict[str, Any]:
        """The envelope's fields."""
        if self._metadata is None:
            self._metadata = from_json(self._stored.metadata)
        return self._metadata

    @property
    def occurred_at(self) -> datetime:
        """When it was appended, by the clock of who appended it: the only time that a fold knows."""
        if self._occurred_at is None:
            self._occurred_at = datetime.fromisoformat(self.metadata["occurred_at"])
        return self._occurred_at

    @property
    def decoded(self) -> ConversationEvent:
        """The domain's event; `UnknownEventType` for one of a type that this code does not know."""
        if self._decoded is None:
            self._decoded = decode_parsed(self._stored, self.conversation_id, self.data, self.metadata)
        return self._decoded

    @property
    def is_copy(self) -> bool:
        """Whether a fork copied it from another conversation, where what it cost was counted."""
        return "copied_from" in self.metadata
