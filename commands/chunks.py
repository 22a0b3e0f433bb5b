"""Many events, appended in pieces that every store takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from domain.event_store import NewEvent

CHUNK_EVENTS = 500
CHUNK_BYTES = 900 * 1024
"""EventStoreDB takes 1 MiB in one append unless it is told otherwise."""


def first_chunk(events: Sequence[NewEvent]) -> Sequence[NewEvent]:
    """Return as many of these events, in their order, as one append should have: one at least."""
    size = 0
    for count, event in enumerate(events[:CHUNK_EVENTS]):
        size += len(event.data.encode()) + len(event.metadata.encode())
        if count and size > CHUNK_BYTES:
            return events[:count]
    return events[:CHUNK_EVENTS]
