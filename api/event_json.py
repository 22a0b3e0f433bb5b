"""The one JSON form of a logged event, shared by the stream, the events route and whoever else shows the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from domain.wire import conversation_of

if TYPE_CHECKING:
    from domain.event_store import StoredEvent


def event_json(event: StoredEvent) -> bytes:
    """Return the event as one line of UTF-8 JSON; `data` and `metadata` are what the log holds, not parsed again.

    ``{"seq", "position", "conversation_id", "type", "occurred_at", "data", "metadata"}``; conversation_id is null for
    a stream that is no conversation's, occurred_at for metadata that names no time.
    """
    head = {
        "seq": event.seq,
        "position": event.position,
        "conversation_id": conversation_of(event.stream),
        "type": event.type,
        "occurred_at": orjson.loads(event.metadata).get("occurred_at"),
    }
    text = f',"data":{event.data},"metadata":{event.metadata}}}'
    if "\n" in text or "\r" in text:  # between JSON's tokens only: there a space says the same
        text = text.replace("\n", " ").replace("\r", " ")
    return orjson.dumps(head)[:-1] + text.encode()
