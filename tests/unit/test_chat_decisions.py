"""What a line typed at a question decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from api.cli.decisions import EditWanted, NotUnderstood, decision
from domain.conversation_state import OpenCall, Question

if TYPE_CHECKING:
    from domain.events import SuspensionKind


def pending(kind: SuspensionKind, schema: dict[str, Any] | None = None) -> OpenCall:
    return OpenCall("call_1", "tool", {}, "server", uuid4(), Question(kind, "May I?", schema, None, uuid4()))


@pytest.mark.parametrize(
    ("kind", "schema", "line", "body"),
    [
        ("approval", None, "a", {"outcome": "approve"}),
        ("approval", None, " Yes ", {"outcome": "approve"}),
        ("approval", None, "r", {"outcome": "reject", "reason": None}),
        ("approval", None, "reject too late", {"outcome": "reject", "reason": "too late"}),
        ("approval", None, 'e {"to": "eve"}', {"outcome": "edit", "args": {"to": "eve"}}),
        ("elicitation", {"type": "string"}, "12", {"outcome": "answer", "answer": "12"}),
        ("elicitation", {"type": "integer"}, "12", {"outcome": "answer", "answer": 12}),
        ("elicitation", {"type": "integer"}, "a dozen", {"outcome": "answer", "answer": "a dozen"}),
        ("elicitation", None, "no", {"outcome": "answer", "answer": "no"}),
        ("elicitation", None, "/reject why?", {"outcome": "reject", "reason": "why?"}),
        ("client", None, "[1.5]", {"outcome": "answer", "answer": [1.5]}),
        ("client", None, "/reject", {"outcome": "reject", "reason": None}),
    ],
)
def test_a_line_is_understood_by_what_was_asked(
    kind: SuspensionKind, schema: dict[str, Any] | None, line: str, body: dict[str, Any]
) -> None:
    assert decision(pending(kind, schema), line) == body


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("approval", "perhaps"),
        ("approval", "a bit later"),
        ("approval", "e [1]"),
        ("approval", "e {"),
        ("elicitation", " "),
        ("client", "here"),
    ],
)
def test_what_decides_nothing_is_asked_again(kind: SuspensionKind, line: str) -> None:
    with pytest.raises(NotUnderstood):
        decision(pending(kind), line)


def test_an_edit_without_arguments_wants_them() -> None:
    with pytest.raises(EditWanted):
        decision(pending("approval"), "edit")
