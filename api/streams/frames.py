"""The bytes of Server-Sent Events; those of a logged event are made once for all clients of the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from api.answers import json_bytes
from api.event_json import event_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from domain.event_store import StoredEvent
    from infra.live_feed import LiveNews

CACHED_BYTES = 4 * 1024 * 1024
COMMENT = b": still here\n\n"


class EventFrames:
    """Encodes logged events; `cursor` gives their ids. Remembers the newest, so that who follows live shares them."""

    def __init__(self, cursor: Callable[[StoredEvent], int], cached_bytes: int = CACHED_BYTES) -> None:
        self._cursor, self._room = cursor, cached_bytes
        self._frames: dict[int, bytes] = {}

    def __call__(self, event: StoredEvent) -> bytes:
        """Return the event's frame."""
        frame = self._frames.get(event.position)
        if frame is None:
            frame = b"id: %d\nevent: %b\ndata: %b\n\n" % (self._cursor(event), event.type.encode(), event_json(event))
            self._frames[event.position] = frame
            self._room -= len(frame)
            while self._room < 0:
                self._room += len(self._frames.pop(next(iter(self._frames))))
        return frame


def message(item: dict[str, Any], seq: int | None = None) -> bytes:
    """Frame a display row; with a `seq` it is the last that this event changed."""
    cursor = b"" if seq is None else b"id: %d\n" % seq
    return b"%bevent: message\ndata: %b\n\n" % (cursor, json_bytes(item))


def caught_up(cursor: str, reached: int) -> bytes:
    """Say that history is delivered."""
    return b'event: caught_up\ndata: {"%b":%d}\n\n' % (cursor.encode(), reached)


def live(news: LiveNews) -> bytes:
    """Frame a delta or partial: it has no id, for no cursor leads back to it."""
    return b"event: %b\ndata: %b\n\n" % (news.name.encode(), news.data)
