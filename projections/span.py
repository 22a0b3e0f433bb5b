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

    `deleted` are conversations whose stream was deleted in it, `skipped` are events of types that this code does not
    know, the first of each type in each conversation.
    """

    __slots__ = ("after", "conversations", "deleted", "position", "skipped")

    def __init__(self, after: int, position: int, stored: Iterable[StoredEvent]) -> None:
        self.after, self.position = after, position
        conversations: dict[UUID, list[Event]] = defaultdict(list)
        self.deleted: list[UUID] = []
        skipped: dict[tuple[UUID, str], Event] = {}
        for event in stored:
            conversation_id = _conversation_of(event.stream)
            if conversation_id is None:
                continue
            if event.type in EVENT_TYPES:
                conversations[conversation_id].append(Event(event, conversation_id))
            elif event.type == STREAM_DELETED:
                self.deleted.append(conversation_id)
            else:
                skipped.setdefault((conversation_id, event.type), Event(event, conversation_id))
        self.skipped = tuple(skipped.values())
        self.conversations: Mapping[UUID, Sequence[Event]] = dict(sorted(conversations.items(), key=_by_id))


def _by_id(item: tuple[UUID, Sequence[Event]]) -> int:
    return item[0].int
