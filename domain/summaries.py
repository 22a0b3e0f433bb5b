"""Which summary is in force: what the sibling stream of a conversation says, read from its newest event backwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from domain.summary_events import SummaryRecorded, SummaryRequested, SummaryRevoked
from domain.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from typing import Any
    from uuid import UUID

    from domain.event_envelope import ConversationEvent
    from domain.scope import Actor


@dataclass(frozen=True, slots=True)
class SummaryState:
    """Where the stream stands (`seq` 0: it is empty), which summary is in force, and whether one is asked for.

    `changed` is the seq of the newest event by which another summary, or none, came into force.
    """

    seq: int = 0
    latest: SummaryRecorded | None = None
    requested: bool = False
    changed: int = 0

    @property
    def to_seq(self) -> int | None:
        """Up to where the summary in force stands for the conversation, None if there is none."""
        return self.latest.to_seq if self.latest else None


def event(
    event_type: type[ConversationEvent], conversation_id: UUID, *, now: datetime, actor: Actor, **fields: Any
) -> ConversationEvent:
    """Make an event of the stream, of cleaned fields; its seq is that which its append gives it."""
    return event_type.model_validate(
        {**clean(fields), "originator_id": conversation_id, "originator_version": 0, "timestamp": now, "actor": actor}
    )


def state_of(events: Sequence[ConversationEvent]) -> SummaryState:
    """Fold the newest events of the stream, ascending; `latest` None may mean that they were too few.

    Each summary continues the one that was in force, so that revoking one revokes all that reach further.
    """
    revoked_from: int | None = None
    recorded = requested = False
    seq = events[-1].seq if events else 0
    changed = next((one.seq for one in reversed(events) if isinstance(one, (SummaryRecorded, SummaryRevoked))), 0)
    for one in reversed(events):
        match one:
            case SummaryRequested():
                requested = requested or not recorded
            case SummaryRevoked():
                revoked_from = one.to_seq if revoked_from is None else min(revoked_from, one.to_seq)
            case SummaryRecorded():
                recorded = True
                if revoked_from is None or one.to_seq < revoked_from:
                    return SummaryState(seq, one, requested, changed)
    return SummaryState(seq, None, requested, changed)


def recorded_in(events: Sequence[ConversationEvent], to_seq: int) -> SummaryRecorded | None:
    """Return the newest summary up to `to_seq`, revoked since or not: a turn keeps the one that it began with."""
    for one in reversed(events):
        if isinstance(one, SummaryRecorded) and one.to_seq == to_seq:
            return one
    return None


def in_force(events: Sequence[ConversationEvent]) -> list[SummaryRecorded]:
    """Return all summaries of a whole stream that are in force, each the base of the next."""
    live: list[SummaryRecorded] = []
    for one in events:
        if isinstance(one, SummaryRecorded):
            live.append(one)
        elif isinstance(one, SummaryRevoked):
            live = [summary for summary in live if summary.to_seq < one.to_seq]
    return live
