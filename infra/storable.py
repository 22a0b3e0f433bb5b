"""What every event store refuses before it writes, so that none can be told from another."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn

from domain.event_store import MAX_EVENT_BYTES, STREAM_DELETED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from domain.event_store import NewEvent


def check_storable(stream: str, events: Sequence[NewEvent]) -> int:
    """Return the bytes of the events' text.

    Raises `ValueError` for an append of nothing, for an event too large, and for text that no store can hold.
    """
    if not events:
        raise ValueError("an append needs at least one event")
    if not stream or "\0" in stream:
        raise ValueError(f"{stream!r} cannot name a stream")
    total = 0
    for event in events:
        if event.type == STREAM_DELETED or "\0" in event.type:
            raise ValueError(f"{event.type!r} cannot be the type of an event")
        size = len(event.data.encode())  # a lone surrogate raises here: UnicodeEncodeError is a ValueError
        if size > MAX_EVENT_BYTES:
            raise ValueError(f"a {event.type} of {size} bytes is too large: an event may have {MAX_EVENT_BYTES}")
        total += size + len(event.metadata.encode())
    return total


def parsed(text: str) -> Any:
    """Return the value of JSON text; raises `ValueError` for what is not JSON, or nests too deep."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("the JSON nests too deep") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
