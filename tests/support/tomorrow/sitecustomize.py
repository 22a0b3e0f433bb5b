"""Rejoinder of tomorrow: with this directory on PYTHONPATH, `conversations` has another version, form and meaning."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.append(str(Path(__file__).parents[3]))

from projections import catalog
from projections.conversations import CONVERSATIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projections.event import Event
    from projections.projection import Rows


def fold(rows: Rows, events: Sequence[Event]) -> None:
    """Fold as today, and shout."""
    CONVERSATIONS.fold(rows, events)
    row = rows.get()
    assert row is not None
    rows.put({**row, "title": "TOMORROW", "events": row["last_seq"]})


NEWER = replace(
    CONVERSATIONS,
    version=CONVERSATIONS.version + 1,
    columns={**CONVERSATIONS.columns, "events": "int not null"},
    fold=fold,
)
vars(catalog)["PROJECTIONS"] = tuple(NEWER if one is CONVERSATIONS else one for one in catalog.PROJECTIONS)
