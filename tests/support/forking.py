"""What a fork must have in common with its source, and what a log is worth on its way to be whole."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from domain.conversation import Conversation
from domain.event_store import NewEvent
from domain.wire import decode, stream_of, summary_stream_of
from domain.working_set import WorkingSet
from projections.agenda import AGENDA
from projections.catalog import PROJECTIONS
from tests.support.projecting import fold_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from domain.event_store import EventStore, StoredEvent


async def put(store: EventStore, log: Sequence[StoredEvent]) -> None:
    """Append events of any streams, in their order."""
    for stream, events in groupby(log, lambda event: event.stream):
        run = list(events)
        new = [NewEvent(event.event_id, event.type, event.data, event.metadata) for event in run]
        await store.append(stream, new, run[0].seq - 1)


async def whole_log(store: EventStore, conversation_id: UUID) -> list[StoredEvent]:
    """Read both streams of a conversation, in the order of the log."""
    streams = stream_of(conversation_id), summary_stream_of(conversation_id)
    return sorted([event for stream in streams for event in await store.read(stream)], key=lambda event: event.position)


def folded(log: Sequence[StoredEvent]) -> Conversation:
    """Fold a conversation's own events."""
    own = [event for event in log if event.stream.startswith("conversation-")]
    events = [decode(event) for event in own]
    return Conversation.at(events[0].originator_id).fold(events)


def seen(log: Sequence[StoredEvent]) -> dict[str, Any]:
    """Return what people see and what the model sees of a log, whoever's it is and whenever it was."""
    rows = {projection.name: list(fold_whole(projection, log).values()) for projection in PROJECTIONS}
    own = [decode(event) for event in log if event.stream.startswith("conversation-")]
    state = folded(log)
    return {
        "messages": [
            {key: row[key] for key in ("seq", "sequence", "turn", "content", "status", "metadata", "occurred_at")}
            for row in rows["display_messages"]
        ],
        "summaries": [(row["to_seq"], row["content"], row["status"]) for row in rows["summaries"]],
        "model": WorkingSet(system_prompt=None, model="demo").fold(own).messages(unanswered=True),
        "waiting": list(state.waiting),
        "settings": (state.settings, state.metadata, state.turns),
    }


def owes_nothing(log: Sequence[StoredEvent]) -> bool:
    """Say whether no row of the agenda is ever due."""
    return all(not row["at_once"] and row["due_at"] is None for row in fold_whole(AGENDA, log).values())
