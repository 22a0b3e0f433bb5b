"""A piece of the log as projections take it: the events between two positions, by conversation."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING

from domain.event_store import STREAM_DELETED
from domain.wire import STREAM, TYPES, kind_of
from projections.event import Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from domain.event_store import StoredEvent
    from projections.projection import Projection

    Events = Mapping[UUID, Sequence[Event]]

_kind_of = lru_cache(maxsize=10_000)(kind_of)


class Span:
    """What the log holds after position `after` up to and including `position`.

    `conversations` ascend by their ids, so that all writers lock rows in one order; see `events_for`.

    `deleted` are conversations whose own stream was deleted in it, `skipped` are events of types that this code does
    not know, the first of each type in each conversation.
    """

    __slots__ = ("_both", "_summaries", "after", "conversations", "deleted", "position", "skipped")

    def __init__(self, after: int, position: int, stored: Iterable[StoredEvent]) -> None:
        self.after, self.position = after, position
        own: dict[UUID, list[Event]] = defaultdict(list)
        summaries: dict[UUID, list[Event]] = defaultdict(list)
        both: dict[UUID, list[Event]] = defaultdict(list)
        self.deleted: list[UUID] = []
        skipped: dict[tuple[UUID, str], Event] = {}
        for event in stored:
            kind, conversation_id = _kind_of(event.stream)
            if conversation_id is None:
                continue
            if event.type in TYPES[kind]:
                known = Event(event, conversation_id)
                both[conversation_id].append(known)
                (own if kind == STREAM else summaries)[conversation_id].append(known)
            elif event.type != STREAM_DELETED:
                skipped.setdefault((conversation_id, event.type), Event(event, conversation_id))
            elif kind == STREAM:
                self.deleted.append(conversation_id)
        self.skipped = tuple(skipped.values())
        self.conversations: Events = dict(sorted(own.items(), key=_by_id))
        self._summaries: Events = dict(sorted(summaries.items(), key=_by_id))
        self._both: Events = dict(sorted(both.items(), key=_by_id)) if summaries else self.conversations

    def events_for(self, projection: Projection) -> Events:
        """Return the events of the streams that a projection folds, by conversation, in the order of the log."""
        match projection.streams:
            case "conversations":
                return self.conversations
            case "summaries":
                return self._summaries
            case "both":
                return self._both


def _by_id(item: tuple[UUID, Sequence[Event]]) -> int:
    return item[0].int
