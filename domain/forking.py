"""How a fork comes to its log: copies of its source's events, under ids that follow from the fork's and theirs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from pydantic_core import from_json

from domain.errors import UnknownEventType
from domain.event_store import NewEvent
from domain.events import AssistantMsg, ConversationStarted
from domain.summary_events import SummaryRecorded, SummaryRevoked
from domain.wire import ALL_TYPES, decode, dumps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from domain.event_store import StoredEvent
    from domain.scope import Actor

_MARK = ("command_id", "body_hash", "receipt")
"""What says which command appended an event; nobody commanded a copy."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Up to which seq a fork copies its source, and the seqs (ascending) before there that it leaves out.

    What is left out are messages that came while the last turn ran, and that it did not see.
    """

    to_seq: int
    without: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        """How many events the fork has when its copies are there; its first is its own."""
        return self.to_seq - len(self.without)

    def place(self, seq: int) -> int:
        """Return the fork's seq of the source's event, of one that is left out that of the one before."""
        return min(seq, self.to_seq) - bisect_right(self.without, seq)

    def origin(self, place: int) -> int:
        """Return the source's seq of the fork's event."""
        seq = place
        for left_out in self.without:
            seq += left_out <= seq
        return seq

    @property
    def whole_until(self) -> int:
        """Return the seq up to which nothing is left out: there both have the same seqs."""
        return self.without[0] - 1 if self.without else self.to_seq


def copied_id(fork_id: UUID, event_id: UUID) -> UUID:
    """Return the id that an event has in a fork."""
    return uuid5(fork_id, str(event_id))


def first_event(source: StoredEvent, fork_id: UUID, cut: Cut, *, now: datetime, actor: Actor) -> ConversationStarted:
    """Make the fork's own first event of the source's: it belongs to the same owner, and begins in the same way."""
    started = decode(source)
    assert isinstance(started, ConversationStarted)
    event_id = copied_id(fork_id, started.event_id)
    return started.model_copy(
        update={
            "originator_id": fork_id,
            "timestamp": now,
            "event_id": event_id,
            "correlation_id": event_id,
            "causation_id": None,
            "actor": actor,
            "copied_from": None,
            "forked_from": started.originator_id,
            "forked_seq": cut.to_seq,
        }
    )


def copies(events: Iterable[StoredEvent], fork_id: UUID, cut: Cut) -> list[NewEvent]:
    """Copy events of the source's own stream, without those that are left out. Raises `UnknownEventType`."""
    left_out = set(cut.without)
    return [_copy(event, fork_id, cut) for event in events if event.seq not in left_out]


def summary_copies(events: Iterable[StoredEvent], fork_id: UUID, cut: Cut) -> list[NewEvent]:
    """Copy what the source's summaries say of the part that is copied; what was asked for is not asked for again.

    Each event is copied or not whatever comes after it: so what was copied before is the beginning of this.
    """
    wanted = (SummaryRecorded.wire_type, SummaryRevoked.wire_type)
    return [
        _copy(event, fork_id, cut)
        for event in events
        if event.type in wanted and from_json(event.data)["to_seq"] <= cut.whole_until
    ]


def _copy(event: StoredEvent, fork_id: UUID, cut: Cut) -> NewEvent:
    if event.type not in ALL_TYPES:
        raise UnknownEventType(f"{event.type} at position {event.position}")
    metadata: dict[str, Any] = {key: value for key, value in from_json(event.metadata).items() if key not in _MARK}
    event_id = copied_id(fork_id, event.event_id)
    for name in ("correlation_id", "causation_id"):
        if metadata.get(name):
            metadata[name] = str(copied_id(fork_id, UUID(metadata[name])))
    metadata |= {"event_id": str(event_id), "copied_from": str(event.event_id)}
    return NewEvent(event_id, event.type, _moved(event, cut), dumps(metadata))


def _moved(event: StoredEvent, cut: Cut) -> str:
    """Return the data, with the seq up to which something was seen as the fork counts it."""
    if event.type not in (AssistantMsg.wire_type, SummaryRecorded.wire_type):
        return event.data
    data = from_json(event.data)
    if (place := cut.place(data["context_seq"])) == data["context_seq"]:
        return event.data
    return dumps(data | {"context_seq": place})


def left_out_from(seq: int, waiting: Sequence[int], notes: Sequence[int], seen: int) -> tuple[int, ...]:
    """Return which messages from `seq` on a finished turn did not see, ascending.

    `waiting` are those without an answer after it, `notes` those that want none; its last reply saw all up to `seen`.
    """
    found = sorted({*waiting, *(note for note in notes if note > seen)})
    return tuple(found[bisect_left(found, seq) :])
