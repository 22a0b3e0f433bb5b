"""Tool calls with the decisions on them, reports of usage, and accepted commands."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from domain.usage import Usage
from domain.wire import CommandMark, dumps, encode
from projections.commands import COMMANDS
from projections.conversations import CONVERSATIONS
from projections.testing import given as given_events
from projections.tool_calls import TOOL_CALLS
from projections.usage import USAGE
from tests.support.given import (
    BEN,
    GATED_CALL,
    LATER,
    NOW,
    OPEN_TURN,
    asked,
    called,
    changed,
    closed,
    got,
    history,
    reported,
    resolved,
    said,
    started,
    stored,
    suspended,
)
from tests.support.projecting import given, given_log

if TYPE_CHECKING:
    from domain.events import ResultStatus

COMMAND = UUID("0192f1a2-0000-7000-8000-00000000c0de")


def test_h1_a_gated_call_is_pending_with_what_is_asked() -> None:
    given(*GATED_CALL).project(TOOL_CALLS).then(
        {
            "tool_call_id": "c1",
            "turn": 1,
            "name": "tool",
            "executor": "server",
            "gated": True,
            "status": "pending",
            "kind": "approval",
            "prompt": "?",
            "response_schema": None,
            "args": {"a": 1},
            "edited_args": None,
            "decision": None,
            "result": None,
            "expires_at": LATER,
            "created_at": NOW,
            "resolved_at": None,
        }
    )


def test_h5_an_edit_keeps_the_original_the_edited_who_when_and_why() -> None:
    edited = resolved(outcome="edited", args={"a": 2}, reason="too many", by=BEN)
    given(*GATED_CALL, edited).project(TOOL_CALLS).then(
        {
            "status": "executing",
            "args": {"a": 1},
            "edited_args": {"a": 2},
            "decision": {
                "outcome": "edited",
                "by": {"kind": "user", "id": "ben"},
                "reason": "too many",
                "at": NOW.isoformat(),
            },
        }
    )


@pytest.mark.parametrize(
    ("result", "status"),
    [
        ("ok", "resolved"),
        ("error", "errored"),
        ("rejected", "rejected"),
        ("expired", "expired"),
        ("cancelled", "cancelled"),
    ],
)
def test_t11_each_result_is_a_status(result: ResultStatus, status: str) -> None:
    given(*OPEN_TURN, said(""), called(), got(status=result, text="so")).project(TOOL_CALLS).then(
        {
            "status": status,
            "result": {"status": result, "content": [{"type": "text", "text": "so"}]},
            "resolved_at": NOW,
        }
    )


def test_h8_a_clients_answer_hides_no_approval() -> None:
    suspensions = (called(executor="client", gated=True), suspended(), resolved(by=BEN), suspended(kind="client"))
    given(*OPEN_TURN, said(""), *suspensions).project(TOOL_CALLS).then({"status": "pending", "kind": "client"})
    calls = given(*OPEN_TURN, said(""), *suspensions, resolved(outcome="answered", answer=1), got()).project(TOOL_CALLS)
    assert [(row["status"], row["decision"]["outcome"]) for row in calls.rows] == [("resolved", "approved")]


def test_c7_each_report_of_usage_is_a_row_with_its_purpose_and_turn() -> None:
    usage = Usage(input_tokens=7, cost_usd=0.25)
    given(
        *OPEN_TURN,
        said(usage=usage),
        said(),
        closed("failed", reason="r", usage=[usage, Usage(model="other")]),
        changed(title="Trip", usage=usage),
        reported(usage, Usage(model="other")),
    ).project(USAGE).then(
        {"seq": 4, "n": 0, "purpose": "turn", "turn": 1, "model": "demo", "input_tokens": 7, "cost_usd": 0.25},
        {"seq": 6, "n": 0, "purpose": "turn", "turn": 1, "model": None},
        {"seq": 6, "n": 1, "purpose": "turn", "turn": 1, "model": "other", "cost_usd": None},
        {"seq": 7, "n": 0, "purpose": "title", "turn": None},
        {"seq": 8, "n": 0, "purpose": "turn", "turn": 1, "cost_usd": 0.25},
        {"seq": 8, "n": 1, "purpose": "turn", "turn": 1, "model": "other"},
    )


def test_c7_compactions_are_reported_by_the_stream_of_summaries() -> None:
    used = {"model": "cheap", "input_tokens": 9, "cost_usd": 0.5}
    summary = {"from_seq": 1, "to_seq": 4, "content": "S", "version": 1, "strategy": "llm", "tokens_before": 9}
    log = given_events(
        ("conversation_started", {"tenant": "acme", "owner": "ada"}),
        ("summary_requested", {}),
        ("summary_failed", {"usage": [used]}),
        ("summary_recorded", {**summary, "context_seq": 4, "model": "cheap", "usage": used}),
        ("summary_recorded", {**summary, "context_seq": 4, "strategy": "window"}),
    )
    log.project(USAGE).then(
        {"purpose": "compaction", "seq": 2, "n": 0, "turn": None, "model": "cheap", "input_tokens": 9},
        {"purpose": "compaction", "seq": 3, "n": 0, "turn": None, "model": "cheap", "cost_usd": 0.5},
    )
    (row,) = log.project(CONVERSATIONS).rows
    assert (row["usage"]["calls"], row["usage"]["cost_usd"], row["last_seq"], row["last_position"]) == (2, 1.0, 1, 1)


def test_usage_was_counted_where_a_forks_copies_came_from() -> None:
    log = [stored(event) for event in history(*OPEN_TURN, said(usage=Usage(input_tokens=7)))]
    copies = [replace(e, metadata=dumps(json.loads(e.metadata) | {"copied_from": str(COMMAND)})) for e in log]
    given_log(copies).project(USAGE).then()


def test_a_command_is_known_by_its_last_event() -> None:
    marked = [encode(event, CommandMark(COMMAND, "h", {"queued": 1})) for event in history(started(), asked())]
    log = [
        replace(stored(event), metadata=new.metadata)
        for event, new in zip(history(started(), asked()), marked, strict=True)
    ]
    given_log(log).project(COMMANDS).then(
        {"command_id": COMMAND, "seq": 2, "position": 2, "body_hash": "h", "receipt": {"queued": 1}}
    )
    given(*OPEN_TURN).project(COMMANDS).then()
