"""Given these events, a projection makes these rows, however the log is cut into batches and delivered again.

For the tests of a projection of one's own::

    given(("tool_call", {"name": "add", "args": {"n": 1}})).project(TOTALS).then({"total": 1})

or with what `rejoinder export` wrote, as with the log of a bug report::

    given_log(api.transfer.reader.read_events(Path("bug.jsonl"))).project(TOTALS).then({"total": 1})
"""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from domain.event_store import StoredEvent
from domain.events import EVENT_TYPES
from domain.wire import ALL_TYPES, dumps, stream_of, summary_stream_of
from projections.projection import Rows
from projections.span import Span
from projections.tables import JSON, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from projections.projection import Key, Projection, Row

FIRST = datetime(2026, 1, 1, 12, tzinfo=UTC)


def given(*events: tuple[str, dict[str, Any]]) -> GivenLog:
    """Begin with the log of one conversation: wire types, and as much of their data as the fold looks at."""
    if unknown := [wire_type for wire_type, _ in events if wire_type not in ALL_TYPES]:
        raise ValueError(f"there is no event {unknown[0]!r}; the events are: {', '.join(ALL_TYPES)}")
    seqs: Counter[str] = Counter()
    log: list[StoredEvent] = []
    for position, (wire_type, data) in enumerate(events, 1):
        stream = (stream_of if wire_type in EVENT_TYPES else summary_stream_of)(UUID(int=1))
        seqs[stream] += 1
        log.append(_stored(stream, seqs[stream], position, wire_type, data))
    return GivenLog(log)


def given_log(log: Iterable[StoredEvent]) -> GivenLog:
    """Begin with a log of any conversations, as a store has it."""
    return GivenLog(list(log))


class GivenLog:
    """A log, ascending by position."""

    def __init__(self, log: list[StoredEvent]) -> None:
        self._log = log

    def project(self, projection: Projection, *, cuts: int = 20) -> Projected:
        """Fold the log from scratch, and live in random batches, each delivered twice: the rows must be the same."""
        whole = fold_whole(projection, self._log)
        for seed in range(cuts):
            table = LiveTable(projection)
            for batch in random_batches(self._log, random.Random(seed)):
                table.deliver(batch)
                table.deliver(batch)
            assert table.rows == whole, f"in the batches of seed {seed} the rows are {table.rows}, at once {whole}"
        return Projected(list(whole.values()))


class Projected:
    """The rows that a projection made, in the order of their keys."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    def then(self, *expected: Row) -> None:
        """Expect exactly these rows; each names only the columns that matter."""
        actual = [{column: row[column] for column in wanted} for row, wanted in zip(self.rows, expected, strict=False)]
        assert actual == list(expected), f"the rows are {actual}"
        assert len(self.rows) == len(expected), f"there are also {self.rows[len(expected) :]}"


class LiveTable:
    """A projection's table in memory, moved as the real one is: only open rows come back to the fold."""

    def __init__(self, projection: Projection) -> None:
        self._projection, self._table = projection, Table(projection)
        self.rows: dict[Key, Row] = {}
        self._position = 0

    def deliver(self, batch: Sequence[StoredEvent]) -> None:
        """Fold a batch unless the checkpoint says that it was."""
        span = Span(self._position, batch[-1].position, batch)
        if batch[0].position <= self._position:
            return
        self._position = span.position
        for conversation_id, events in span.events_for(self._projection).items():
            mine = [row for key, row in self.rows.items() if key[0] == conversation_id]
            rows = Rows(self._projection, conversation_id, filter(self._projection.is_open, mine))
            self._projection.fold(rows, events)
            for key, row in rows.take_changes().items():
                self.rows.pop((conversation_id, *key), None)
                if row is not None:
                    self.rows[conversation_id, *key] = as_read_back(self._table, row)
        self.rows = dict(sorted(self.rows.items()))


def fold_whole(projection: Projection, log: Iterable[StoredEvent]) -> dict[Key, Row]:
    """Fold each conversation's events at once, as a rebuild does; return the rows by key, ascending."""
    table = Table(projection)
    folded: dict[Key, Row] = {}
    for conversation_id, events in Span(0, 0, log).events_for(projection).items():
        rows = Rows(projection, conversation_id)
        projection.fold(rows, events)
        for key, row in rows.take_changes().items():
            if row is not None:
                folded[conversation_id, *key] = as_read_back(table, row)
    return dict(sorted(folded.items()))


def as_read_back(table: Table, row: Row) -> Row:
    """Return a row as the database would give it back."""
    assert set(row) == set(table.columns), f"a row has {sorted(row)}, its table {sorted(table.columns)}"
    return {
        column: json.loads(dumps(row[column])) if kind in JSON else row[column]
        for column, kind in zip(table.columns, table.types, strict=True)
    }


def random_batches(log: Sequence[StoredEvent], chance: random.Random) -> list[Sequence[StoredEvent]]:
    """Cut a log into pieces of random sizes."""
    batches, at = [], 0
    while at < len(log):
        size = chance.choice((1, 1, 2, 3, 10, 100))
        batches.append(log[at : at + size])
        at += size
    return batches


def _stored(stream: str, seq: int, position: int, wire_type: str, data: dict[str, Any]) -> StoredEvent:
    event_id = UUID(int=position)
    metadata = {
        "event_id": str(event_id),
        "occurred_at": (FIRST + timedelta(seconds=position)).isoformat(),
        "actor": {"kind": "user", "id": "ada"},
        "schema_version": ALL_TYPES[wire_type].schema_version,
    }
    return StoredEvent(stream, seq, position, event_id, wire_type, dumps(data), dumps(metadata))
