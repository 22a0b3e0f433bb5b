"""Reading the sibling stream of a conversation: its newest page says it all, but for long-revoked histories."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from domain.compaction import after, first_needed
from domain.errors import ConversationNotFound
from domain.summaries import SummaryState, recorded_in, state_of
from domain.wire import decode, stream_of, summary_stream_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar
    from uuid import UUID

    from domain.event_envelope import ConversationEvent
    from domain.event_store import EventStore
    from domain.summary_events import SummaryRecorded

    Found = TypeVar("Found")

PAGE = 8
SLICE = 100
"""So many events are read at a time: everything else on the loop waits for them, some milliseconds."""


async def summary_state(store: EventStore, conversation_id: UUID) -> SummaryState:
    """Return which summary is in force, by one read where it is not revoked. Raises `StoreError`."""
    return await _found(store, conversation_id, state_of, lambda state: state.latest is not None)


async def revived(store: EventStore, conversation_id: UUID) -> tuple[SummaryState, list[ConversationEvent]]:
    """Return what a model sees of a conversation: the summary in force, and the events that it does not stand for.

    One read of each of the two streams. Raises `StoreError`, `UnknownEventType`.
    """
    state = await summary_state(store, conversation_id)
    stored = await store.read(stream_of(conversation_id), after=first_needed(state.latest) - 1)
    events: list[ConversationEvent] = []
    for start in range(0, len(stored), SLICE):
        events += [decode(event) for event in stored[start : start + SLICE]]
        await asyncio.sleep(0)
    return state, after(state.latest, events)


async def recorded_summary(store: EventStore, conversation_id: UUID, to_seq: int) -> SummaryRecorded:
    """Return the newest summary up to a seq, revoked or not. Raises `ConversationNotFound` if it was erased."""
    found = await _found(
        store, conversation_id, lambda events: recorded_in(events, to_seq), lambda summary: summary is not None
    )
    if found is None:
        raise ConversationNotFound("the conversation was erased meanwhile")
    return found


async def summary_events(store: EventStore, conversation_id: UUID) -> list[ConversationEvent]:
    """Return the whole stream."""
    return [decode(stored) for stored in await store.read(summary_stream_of(conversation_id))]


async def _found(
    store: EventStore,
    conversation_id: UUID,
    fold: Callable[[list[ConversationEvent]], Found],
    enough: Callable[[Found], bool],
) -> Found:
    """Fold the newest events, more and more of them until they are enough."""
    stream = summary_stream_of(conversation_id)
    events = [decode(stored) for stored in await store.read(stream, limit=PAGE)]
    while not enough(found := fold(events)) and events and events[0].seq > 1:
        older = await store.read(stream, before=events[0].seq, limit=2 * len(events))
        events = [*map(decode, older), *events]
    return found
