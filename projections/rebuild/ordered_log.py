"""The port to the log in the order of conversations: every one from its first event to its last."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from domain.event_store import StoredEvent


class Slice(NamedTuple):
    """Whole conversations, by the names of their own streams, from the first one up to and without the next.

    None: no bound. `events` is about how many they have there.
    """

    first: str | None
    next: str | None
    events: int


class OrderedLog(Protocol):
    """The events of conversations. Streams that were deleted have none but a tombstone."""

    async def slices(self, events: int) -> list[Slice]:
        """Cut the log into slices of about so many events, ascending; together they are all of it, now and later."""
        ...

    def read(self, piece: Slice, upto: int) -> AsyncGenerator[Sequence[StoredEvent], None]:
        """Yield a slice's events up to a position, by conversation and position, in pages small enough to be held.

        Those of a conversation's own stream and of its sibling stream of summaries.
        Tombstones come whatever their position, for they say why a stream has nothing else. Close it to end it.
        """
        ...
