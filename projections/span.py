"""A piece of the log as projections take it: the events between two positions, by conversation."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING

from domain.event_store import STREAM_DELETED
from domain.events import EVENT_TYPES
from domain.wire import conversation_of
from projections.event import Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from domain.event_store import StoredEvent

_conversation_of = lru_cache(maxsize=10_000)(conversation_of)


class Span:
    """What the log holds after position `after` up to and including `position`.

    `conversations` ascend by their ids, so that all writers lock rows in one order.

    `deleted` are conversations whose stream was deleted in it, `skipped` is the position of the first event of a type
    that this code does not know.
    """

    __slots__ = ("after", "conversations", "deleted", "position", "skipped")

    def __init__(self, after: int, position: int, events: Iterable[Entry]) -> None:
        self.after, self.position = after, position
        conversations: dict[UUID, list[Event]] = defaultdict(list)
        self.deleted: list[UUID] = []
        self.skipped: int | None = None
        for entry in events:
            if entry.event is not None:
                conversations[entry.event.conversation_id].append(entry.event)
            elif entry.deleted is not None:
                self.deleted.append(entry.deleted)
            elif self.skipped is None:
                self.skipped = entry.position
        self.conversations: Mapping[UUID, Sequence[Event]] = dict(sorted(conversations.items(), key=_by_id))


def _by_id(item: tuple[UUID, Sequence[Event]]) -> int:
    return item[0].int


class Entry:
    """One stored event as a span takes it: a conversation's event, a deletion, or neither (an unknown type)."""

    __slots__ = ("deleted", "event", "position", "size")

    def __init__(self, stored: StoredEvent) -> None:
        self.position, self.size = stored.position, len(stored.data) + len(stored.metadata)
        conversation_id = _conversation_of(stored.stream)
        self.event: Event | None = None
        self.deleted = conversation_id if stored.type == STREAM_DELETED else None
        if conversation_id is not None and stored.type in EVENT_TYPES:
            self.event = Event(stored, conversation_id)
