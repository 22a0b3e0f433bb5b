"""What people see: each life of a message and of a tool call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from domain.parts import Part, text_part
from projections.display_messages import DISPLAY_MESSAGES
from tests.support.given import (
    GATED_CALL,
    LATER,
    OPEN_TURN,
    Fact,
    asked,
    called,
    claimed,
    closed,
    finished,
    got,
    resolved,
    said,
    started,
    suspended,
)
from tests.support.projecting import given

if TYPE_CHECKING:
    from projections.testing import Projected


def shown(message_type: str, content_type: str, status: str, **more: Any) -> dict[str, Any]:
    return {"message_type": message_type, "content_type": content_type, "status": status, **more}


def when(*facts: Fact, then: list[dict[str, Any]]) -> None:
    given(*facts).project(DISPLAY_MESSAGES).then(*then)


def test_a_message_is_pending_until_a_turn_answers_it() -> None:
    when(started(), asked(), then=[shown("user", "text", "pending", turn=None, message_id="m1", seq=2, sequence=0)])
    when(*OPEN_TURN, then=[shown("user", "text", "completed", turn=1)])


def test_a_message_that_wants_no_answer_is_completed_at_once() -> None:
    when(started(), asked(respond=False), then=[shown("user", "text", "completed", turn=None)])


def test_b2_a_steering_message_is_completed_by_the_reply_that_saw_it() -> None:
    steer = asked("m2", when_busy="steer")
    when(
        *OPEN_TURN,
        steer,
        said("unseeing", context_seq=3),
        then=[
            shown("user", "text", "completed", turn=1),
            shown("user", "text", "pending", turn=None),
            shown("assistant", "text", "completed", turn=1),
        ],
    )
    when(
        *OPEN_TURN,
        steer,
        asked("m3"),
        said("seeing", context_seq=5),
        then=[
            shown("user", "text", "completed"),
            shown("user", "text", "completed", turn=1),
            shown("user", "text", "pending"),
            shown("assistant", "text", "completed"),
        ],
    )


def test_each_part_is_a_row_and_what_is_the_providers_stays_away() -> None:
    parts = [
        Part(type="thinking", text="hm", provider_data={"signature": "s"}),
        text_part("Look:"),
        Part(type="image_url", image_url={"url": "data:x"}),
        Part(type="hosted_tool", data={"a": 1}),
    ]
    when(
        *OPEN_TURN,
        said(content=parts),
        then=[
            shown("user", "text", "completed"),
            shown("assistant", "thinking", "completed", seq=4, sequence=0, content={"type": "thinking", "text": "hm"}),
            shown("assistant", "text", "completed", sequence=1, content={"type": "text", "text": "Look:"}),
            shown("assistant", "image", "completed", sequence=2),
            shown("assistant", "file", "completed", sequence=3, content={"type": "hosted_tool", "data": {"a": 1}}),
        ],
    )


def test_a_system_message_is_shown_as_such() -> None:
    when(started(), asked(role="system"), then=[shown("system", "text", "pending")])


def test_a_call_runs_and_has_its_result() -> None:
    running = (*OPEN_TURN, said(""), called())
    when(*running, then=[shown("user", "text", "completed"), shown("tool", "tool_call", "executing", turn=1)])
    for result, status in (
        ("ok", "completed"),
        ("error", "failed"),
        ("rejected", "rejected"),
        ("expired", "expired"),
        ("cancelled", "cancelled"),
    ):
        when(
            *running,
            got(status=result),  # type: ignore[arg-type]  # the loop's variable is wider than the literal
            then=[
                shown("user", "text", "completed"),
                shown("tool", "tool_call", status, tool_call_id="c1"),
                shown("tool", "tool_result", status, tool_call_id="c1", turn=1),
            ],
        )


def test_h1_a_gated_call_awaits_input_and_says_what_is_asked() -> None:
    content = {
        "tool_call_id": "c1",
        "name": "tool",
        "args": {"a": 1},
        "executor": "server",
        "gated": True,
        "kind": "approval",
        "prompt": "?",
        "response_schema": None,
        "expires_at": LATER.isoformat().replace("+00:00", "Z"),
    }
    when(
        *GATED_CALL,
        then=[shown("user", "text", "completed"), shown("tool", "tool_call", "awaiting_input", content=content)],
    )


def test_h5_an_edited_call_shows_the_original_and_the_edited_arguments() -> None:
    rows = given(*GATED_CALL, resolved(outcome="edited", args={"a": 2})).project(DISPLAY_MESSAGES).rows
    call = rows[-1]
    assert call["status"] == "executing"
    assert (call["content"]["args"], call["content"]["edited_args"]) == ({"a": 1}, {"a": 2})
    assert call["content"]["decision"]["outcome"] == "edited"


def test_h8_a_gated_client_call_awaits_input_twice() -> None:
    twice = (
        *OPEN_TURN,
        said(""),
        called(executor="client", gated=True),
        suspended(),
        resolved(),
        suspended(kind="client"),
    )
    when(*twice, then=[shown("user", "text", "completed"), shown("tool", "tool_call", "awaiting_input")])


def test_b5_a_cancelled_turn_keeps_the_partial_text_marked_cancelled() -> None:
    when(
        *OPEN_TURN,
        closed("cancelled", reason="stop", partial_text="Once upon"),
        then=[
            shown("user", "text", "completed"),
            shown("assistant", "text", "cancelled", sequence=0, content={"type": "text", "text": "Once upon"}),
            shown("system", "notification", "cancelled", sequence=1),
        ],
    )


def test_a_failed_turn_is_an_error_with_its_reason() -> None:
    when(
        *OPEN_TURN,
        closed("failed", reason="rate_limited"),
        then=[
            shown("user", "text", "completed"),
            shown("system", "error", "failed", content={"text": "The turn failed.", "reason": "rate_limited"}),
        ],
    )


def test_b6_a_message_that_no_turn_answers_any_more_is_cancelled_by_the_end() -> None:
    when(
        started(),
        asked(),
        finished(),
        then=[shown("user", "text", "cancelled"), shown("system", "notification", "completed")],
    )


def test_a_second_turn_answers_what_was_queued() -> None:
    when(
        *OPEN_TURN,
        asked("m2"),
        said(),
        closed(),
        claimed(),
        then=[
            shown("user", "text", "completed", turn=1),
            shown("user", "text", "completed", turn=2),
            shown("assistant", "text", "completed", turn=1),
        ],
    )


def test_r9_what_compaction_leaves_in_a_conversation_changes_no_message() -> None:
    def turns(closing: dict[str, Any], claiming: dict[str, Any]) -> Projected:
        first = (started(), asked(), claimed(), said("Hi"), closed(**closing))
        again = (asked("m2"), replace(claimed(), fields=claiming), said("Yes"), closed())
        return given(*first, *again).project(DISPLAY_MESSAGES)

    plain = [{name: row[name] for name in row if name != "event_id"} for row in turns({}, {}).rows]
    turns({"compact": True}, {"summary_to_seq": 4}).then(*plain)
