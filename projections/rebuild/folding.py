"""Folding of conversations one after the other, each from its beginning, into rows that need no change any more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from domain.event_store import STREAM_DELETED
from domain.events import EVENT_TYPES
from domain.wire import STREAM, TYPES, kind_of
from projections.event import Event
from projections.projection import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from uuid import UUID

    from domain.event_store import StoredEvent
    from projections.projection import Key, Projection, Row

PIECE_EVENTS = 500
"""A conversation is folded in pieces of at most so many events."""
MOST_HELD = 5_000
"""A long conversation's rows are given away once there are so many, all but those that may still change."""


@dataclass(slots=True)
class Made:
    """What one projection made: finished rows, and keys (conversation first) of rows given before that are no more."""

    rows: list[Row] = field(default_factory=list)
    void: list[Key] = field(default_factory=list)


class FoldError(Exception):
    """A conversation that a projection cannot take in; the cause says why."""

    def __init__(self, projection: Projection, conversation_id: UUID, first: Event, cause: Exception) -> None:
        super().__init__(
            f"{projection.name} cannot fold conversation {conversation_id} from event {first.seq} on: "
            f"{type(cause).__name__}"
        )
        self.name, self.conversation_id = projection.name, conversation_id


class Folding:
    """Takes events by conversation and position, and makes the rows of these projections.

    What a projection cannot take in raises `FoldError`, or is `refused`: that conversation then has none of its rows.
    """

    def __init__(self, projections: Sequence[Projection], refused: Callable[[FoldError], None] | None = None) -> None:
        self._projections, self._refused = projections, refused
        self._one: _Conversation | None = None
        self._stream, self._kind = "", ""
        self.made = [Made() for _ in projections]
        self.rows = 0
        self.skipped: list[Event] = []
        """Events of types that this code does not know."""
        self.finished: UUID | None = None
        """The last conversation of which all rows are made."""

    def take(self, events: Iterable[StoredEvent]) -> None:
        """Fold on; what is finished is in `made`."""
        for stored in events:
            if stored.stream != self._stream:
                self._begin(stored.stream)
            if self._one is None:
                continue
            if stored.type in TYPES[self._kind]:
                self._one.events.append(Event(stored, self._one.id))
                if len(self._one.events) >= PIECE_EVENTS:
                    self._one.fold()
                    if self._one.held > MOST_HELD:
                        self.rows += self._one.give(self.made, everything=False)
            elif stored.type == STREAM_DELETED:
                self._one.deleted |= self._kind == STREAM
            else:
                self.skipped.append(Event(stored, self._one.id))

    def _begin(self, stream: str) -> None:
        kind, conversation_id = kind_of(stream)
        if self._one is None or conversation_id != self._one.id:
            self.finish()
            if conversation_id is not None:
                self._one = _Conversation(conversation_id, self._projections, self._refused)
        self._stream, self._kind = stream, kind

    def finish(self) -> None:
        """End the conversation that the last event was of; one that was deleted has no rows."""
        if self._one is not None:
            if not self._one.deleted:
                self._one.fold()
                self.rows += self._one.give(self.made, everything=True)
            self.finished = self._one.id
        self._one, self._stream = None, ""

    def take_made(self) -> list[Made]:
        """Return what was made since the last call, by projection."""
        made, self.made, self.rows = self.made, [Made() for _ in self._projections], 0
        return made


class _Conversation:
    """The conversation that is being folded."""

    __slots__ = ("_changes", "_given", "_projections", "_refused", "_rows", "deleted", "events", "id")

    def __init__(
        self,
        conversation_id: UUID,
        projections: Sequence[Projection],
        refused: Callable[[FoldError], None] | None,
    ) -> None:
        self.id, self._refused = conversation_id, refused
        self.events: list[Event] = []
        self.deleted = False
        self._projections = projections
        self._rows: list[Rows | None] = [Rows(projection, conversation_id) for projection in projections]
        self._changes: list[dict[Key, Row | None]] = [{} for _ in projections]
        self._given: list[set[Key]] = [set() for _ in projections]

    @property
    def held(self) -> int:
        return sum(map(len, self._changes))

    def fold(self) -> None:
        own = [event for event in self.events if event.type in EVENT_TYPES]
        summaries = [event for event in self.events if event.type not in EVENT_TYPES]
        of = {"conversations": own, "summaries": summaries, "both": self.events}
        for n, (projection, rows) in enumerate(zip(self._projections, self._rows, strict=True)):
            events = of[projection.streams]
            if rows is None or not events:
                continue
            try:
                projection.fold(rows, events)
            except Exception as error:
                failure = FoldError(projection, self.id, events[0], error)
                if self._refused is None:
                    raise failure from error
                self._refused(failure)
                self._rows[n], self._changes[n] = None, {}
            else:
                self._changes[n].update(rows.take_changes())
        self.events = []

    def give(self, made: Sequence[Made], *, everything: bool) -> int:
        """Give rows away, `everything` or all but open ones; return how many."""
        count = 0
        for n, projection in enumerate(self._projections):
            changes, given, void = self._changes[n], self._given[n], projection.is_void
            finished = {
                key: row for key, row in changes.items() if everything or row is None or not projection.is_open(row)
            }
            if again := finished.keys() & given:
                made[n].void += [(self.id, *key) for key in again]
                made[n].rows = [row for row in made[n].rows if not self._is_one_of(row, again, projection)]
            if not everything:
                given.update(finished)
                for key in finished:
                    del changes[key]
            made[n].rows += [row for row in finished.values() if row is not None and not (void and void(row))]
            count += len(finished)
        return count

    def _is_one_of(self, row: Row, keys: Collection[Key], projection: Projection) -> bool:
        return row["conversation_id"] == self.id and projection.key_of(row) in keys
