"""However the log is cut into pages and conversations into pieces, a rebuild makes the rows of a fold from scratch."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from domain.event_store import STREAM_DELETED, StoredEvent
from projections.catalog import PROJECTIONS
from projections.rebuild import folding
from projections.rebuild.folding import Folding
from projections.tables import Table
from projections.testing import as_read_back, fold_whole
from tests.support.projecting import interleaved
from tests.support.random_log import random_log
from tests.support.rebuilding import without_void

if TYPE_CHECKING:
    from collections.abc import Sequence

Rows = dict[tuple[Any, ...], dict[str, Any]]


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), page=st.integers(1, 90), piece=st.integers(1, 30), held=st.integers(0, 20))
def test_r4_any_log_in_any_pieces_makes_the_same_rows(seed: int, page: int, piece: int, held: int) -> None:
    chance = random.Random(seed)
    log = interleaved([random_log(chance, steps=chance.randrange(1, 40)) for _ in range(3)], chance)
    with patch.multiple(folding, PIECE_EVENTS=piece, MOST_HELD=held):
        made = folded(sorted(log, key=lambda event: (event.stream, event.seq)), page, chance)
    for projection, rows in zip(PROJECTIONS, made, strict=True):
        assert rows == without_void(projection, fold_whole(projection, log)), projection.name


def folded(log: Sequence[StoredEvent], page: int, chance: random.Random) -> list[Rows]:
    """Fold the log as a rebuild does, and keep the rows as a table would that has no key yet."""
    tables = [Table(projection) for projection in PROJECTIONS]
    made: list[Rows] = [{} for _ in PROJECTIONS]
    fold = Folding(PROJECTIONS)
    for at in range(0, len(log), page):
        fold.take(log[at : at + page])
        if chance.random() < 0.5:
            keep(fold, tables, made)
    fold.finish()
    keep(fold, tables, made)
    return made


def keep(fold: Folding, tables: Sequence[Table], made: Sequence[Rows]) -> None:
    for table, rows, new in zip(tables, made, fold.take_made(), strict=True):
        for key in new.void:
            rows.pop(key, None)
        for row in new.rows:
            assert table.key_of(row) not in rows, "a row is given twice"
            rows[table.key_of(row)] = as_read_back(table, row)


def test_a_tombstone_is_no_unknown_event_and_other_streams_are_nobodys() -> None:
    [first, *_] = random_log(random.Random(1), steps=1)
    streams = (first.stream, "conversation-x", "summary-x")
    fold = Folding(PROJECTIONS)
    fold.take([StoredEvent(stream, 9, 9, first.event_id, STREAM_DELETED, "{}", "{}") for stream in streams])
    fold.finish()
    assert fold.skipped == []
    assert not any(made.rows for made in fold.take_made())
