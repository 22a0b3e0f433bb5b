"""Folding a conversation's two streams: its summaries, and the compactions that it owes."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from domain.event_store import STREAM_DELETED, StoredEvent
from domain.wire import stream_of, summary_stream_of
from projections.agenda import AGENDA
from projections.catalog import PROJECTIONS
from projections.display_messages import DISPLAY_MESSAGES
from projections.rebuild.folding import Folding
from projections.span import Span
from projections.summaries import SUMMARIES
from projections.testing import given

ENDED = ("turn_ended", {"turn": 1, "outcome": "completed"})
OVER_BUDGET = ("turn_ended", {"turn": 1, "outcome": "completed", "compact": True})
REQUESTED: tuple[str, dict[str, Any]] = ("summary_requested", {})


def recorded(to_seq: int, *, context_seq: int = 99, **fields: Any) -> tuple[str, dict[str, Any]]:
    data = {"from_seq": 1, "content": f"up to {to_seq}", "version": 1, "strategy": "llm", "tokens_before": 900}
    return "summary_recorded", {"to_seq": to_seq, "context_seq": context_seq, **data, **fields}


def revoked(to_seq: int) -> tuple[str, dict[str, Any]]:
    return "summary_revoked", {"to_seq": to_seq}


def test_summaries_are_kept_and_marked_when_they_are_revoked() -> None:
    log = (OVER_BUDGET, recorded(4), ENDED, recorded(8, based_on=4), revoked(8), recorded(12, based_on=4))
    given(*log).project(SUMMARIES).then(
        {"seq": 1, "to_seq": 4, "content": "up to 4", "status": "live"},
        {"seq": 2, "to_seq": 8, "based_on": 4, "status": "revoked"},
        {"seq": 4, "to_seq": 12, "based_on": 4, "status": "live"},
    )


def test_c4_revoking_a_summary_revokes_what_was_built_on_it() -> None:
    given(recorded(4), recorded(8), revoked(4), recorded(6)).project(SUMMARIES).then(
        {"to_seq": 4, "status": "revoked"}, {"to_seq": 8, "status": "revoked"}, {"to_seq": 6, "status": "live"}
    )


@pytest.mark.parametrize(
    ("log", "position", "owed"),
    [
        ((OVER_BUDGET,), 1, True),
        ((OVER_BUDGET, recorded(1)), 2, False),
        ((OVER_BUDGET, recorded(1), ENDED), 2, False),
        ((OVER_BUDGET, OVER_BUDGET, recorded(1, context_seq=1)), 3, True),
        ((REQUESTED,), 1, True),
        ((REQUESTED, recorded(1)), 2, False),
        ((OVER_BUDGET, recorded(1), revoked(1)), 2, False),
        ((OVER_BUDGET, ("conversation_ended", {})), 2, False),
        ((recorded(1, context_seq=0), OVER_BUDGET), 2, True),
    ],
)
def test_the_agenda_owes_a_compaction_until_a_summary_knew_of_it(
    log: tuple[tuple[str, dict[str, Any]], ...], position: int, *, owed: bool
) -> None:
    rows = [row for row in given(*log).project(AGENDA).rows if row["kind"] == "compaction"]
    [row] = rows
    assert (row["seq"], row["at_once"], row["due_at"] is not None) == (position, owed, owed)


def test_a_conversation_within_its_budget_has_no_row_of_compactions() -> None:
    assert {row["kind"] for row in given(ENDED, ("conversation_ended", {})).project(AGENDA).rows} == {"turn"}


def test_r9_folds_of_conversations_see_nothing_of_summaries() -> None:
    message = {"message_id": "m", "content": [{"type": "text", "text": "Hi"}], "role": "user"}
    said = ("user_msg", message)
    rows = given(said, recorded(1), revoked(1), REQUESTED).project(DISPLAY_MESSAGES).rows
    assert rows == given(said).project(DISPLAY_MESSAGES).rows


def test_nothing_is_left_of_a_conversation_whose_streams_were_deleted() -> None:
    one = UUID(int=1)
    data, metadata = recorded(4)[1], {"occurred_at": "2026-01-01T00:00:00+00:00", "actor": {"kind": "user", "id": "a"}}
    summary = StoredEvent(
        summary_stream_of(one), 1, 5, UUID(int=5), "summary_recorded", json.dumps(data), json.dumps(metadata)
    )
    tombstone = StoredEvent(stream_of(one), 9, 9, UUID(int=9), STREAM_DELETED, "{}", "{}")
    folding = Folding(PROJECTIONS)
    folding.take([summary, tombstone])
    folding.finish()
    assert [made.rows for made in folding.take_made()] == [[] for _ in PROJECTIONS]
    assert folding.finished == one

    of_summary = StoredEvent(summary_stream_of(one), 2, 6, UUID(int=6), STREAM_DELETED, "{}", "{}")
    span = Span(0, 9, [of_summary])
    assert (span.deleted, dict(span.events_for(SUMMARIES))) == ([], {})
    assert Span(0, 9, [of_summary, tombstone]).deleted == [one]
