"""Given these events, a projection makes these rows, however the log is cut into batches and delivered again.

For a projection of one's own too::

    given(started(), asked("m1", text="Hello")).project(DISPLAY_MESSAGES).then({"status": "pending"})
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from domain.wire import dumps
from projections.projection import Rows
from projections.span import Span
from projections.tables import Table
from tests.support.given import Fact, history, stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from domain.event_store import StoredEvent
    from projections.projection import Projection, Row

Key = tuple[Any, ...]


def given(*facts: Fact) -> GivenLog:
    """Begin with the log of one conversation."""
    return GivenLog([stored(event) for event in history(*facts)])


def given_log(log: Iterable[StoredEvent]) -> GivenLog:
    """Begin with a log of any conversations."""
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
            assert table.rows == whole, f"batches of seed {seed} make other rows"
        return Projected(list(whole.values()))


class Projected:
    """The rows that a projection made, in the order of their keys."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    def then(self, *expected: Row) -> None:
        """Expect exactly these rows; each names only the columns that matter."""
        actual = [{column: row[column] for column in wanted} for row, wanted in zip(self.rows, expected, strict=False)]
        assert actual == list(expected)
        assert len(self.rows) == len(expected), self.rows[len(expected) :]


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
        for conversation_id, events in span.conversations.items():
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
    for conversation_id, events in Span(0, 0, log).conversations.items():
        rows = Rows(projection, conversation_id)
        projection.fold(rows, events)
        for key, row in rows.take_changes().items():
            if row is not None:
                folded[conversation_id, *key] = as_read_back(table, row)
    return dict(sorted(folded.items()))


def as_read_back(table: Table, row: Row) -> Row:
    """Return a row as the database would give it back."""
    assert set(row) == set(table.columns), "a row has exactly its table's columns"
    return {
        column: json.loads(dumps(row[column])) if kind == "json" else row[column]
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


def interleaved(logs: Sequence[Sequence[StoredEvent]], chance: random.Random) -> list[StoredEvent]:
    """Merge the logs of several conversations into one, at random, with positions 1, 2, 3 …"""
    queues = [list(log) for log in logs if log]
    merged: list[StoredEvent] = []
    while queues:
        queue = chance.choice(queues)
        merged.append(replace(queue.pop(0), position=len(merged) + 1))
        queues = [queue for queue in queues if queue]
    return merged
