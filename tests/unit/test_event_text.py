"""What an event says in a line."""

from __future__ import annotations

from typing import Any

import pytest

from api.event_text import event_text


@pytest.mark.parametrize(
    ("event_type", "data", "line"),
    [
        ("conversation_started", {"tenant": "a", "owner": "ada"}, "a/ada"),
        (
            "conversation_started",
            {"tenant": "a", "owner": "ada", "title": "Paris", "forked_from": "ID", "forked_seq": 7},
            'a/ada, title "Paris", forked from ID, event 7',
        ),
        (
            "conversation_changed",
            {"title": "plan my trip to Paris in", "settings": {"titles": True}},
            'title "plan my trip to Paris in", settings {"titles": true}',
        ),
        ("conversation_changed", {}, "settings {}"),
        ("turn_ended", {"turn": 1, "outcome": "completed"}, "turn 1 completed"),
        (
            "turn_ended",
            {"turn": 1, "outcome": "failed", "reason": "hook_failed", "detail": "The hook raises failed"},
            "turn 1 failed: hook_failed: The hook raises failed",
        ),
        ("resolution", {"outcome": "approved", "by": {"id": "ada"}}, "approved by ada"),
        (
            "resolution",
            {"outcome": "approved", "by": {"id": "ada"}, "args": {"a": 1}, "reason": "cheaper"},
            'approved by ada: {"a": 1}: cheaper',
        ),
        ("tool_call", {"of": "another shape"}, '{"of": "another shape"}'),
        ("of tomorrow", {"a": "\x1b[31m"}, '{"a": "\\u001b[31m"}'),
    ],
)
def test_an_event_says_this(event_type: str, data: dict[str, Any], line: str) -> None:
    assert event_text(event_type, data) == line
