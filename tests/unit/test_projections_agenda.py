"""What the agenda says is due, and when."""

from __future__ import annotations

from datetime import timedelta

from projections.agenda import AGENDA
from tests.support.given import (
    GATED_CALL,
    LATER,
    NOW,
    OPEN_TURN,
    asked,
    called,
    changed,
    closed,
    copied_whole,
    finished,
    got,
    resolved,
    resumed,
    said,
    started,
    suspended,
)
from tests.support.projecting import given

AT_ONCE = {"at_once": True, "due_at": NOW}
NEVER = {"at_once": False, "due_at": None}


def test_a_conversation_without_messages_owes_nothing() -> None:
    given(started()).project(AGENDA).then(NEVER | {"kind": "turn", "seq": 1, "state": None})


def test_b1_a_message_is_due_at_once() -> None:
    given(started(), asked()).project(AGENDA).then(AT_ONCE | {"seq": 2})


def test_t1_an_open_turn_is_due_until_it_ends() -> None:
    given(*OPEN_TURN).project(AGENDA).then(AT_ONCE)
    given(*OPEN_TURN, said(), closed()).project(AGENDA).then(NEVER | {"state": None})


def test_h9_a_call_that_waits_for_people_is_due_at_the_earliest_deadline() -> None:
    given(*GATED_CALL).project(AGENDA).then({"at_once": False, "due_at": LATER})
    earlier = (called("c2", gated=True), suspended("c2", expires_at=LATER - timedelta(minutes=1)))
    given(*GATED_CALL, *earlier).project(AGENDA).then({"due_at": LATER - timedelta(minutes=1)})


def test_h10_rescheduling_moves_the_deadline_or_takes_it_away() -> None:
    given(*GATED_CALL, suspended(expires_at=NOW)).project(AGENDA).then({"at_once": False, "due_at": NOW})
    given(*GATED_CALL, suspended(expires_at=None)).project(AGENDA).then(NEVER)


def test_h7_a_mixed_batch_is_due_at_once() -> None:
    given(*GATED_CALL, called("c2")).project(AGENDA).then(AT_ONCE)
    given(*GATED_CALL, called("c2"), got("c2")).project(AGENDA).then({"at_once": False, "due_at": LATER})


def test_h1_an_approved_call_is_due_at_once() -> None:
    given(*GATED_CALL, resolved()).project(AGENDA).then(AT_ONCE)


def test_t8_a_turn_that_was_resumed_too_often_is_due_though_it_waits_for_people() -> None:
    limited = (started(settings={"max_attempts": 1}), *GATED_CALL[1:], resumed())
    given(*limited).project(AGENDA).then(AT_ONCE)
    given(*GATED_CALL, resumed()).project(AGENDA).then({"at_once": False})


def test_limits_outlive_an_idle_time() -> None:
    given(started(settings={"max_steps": 2, "system_prompt": "long"})).project(AGENDA).then(
        {"state": {"settings": {"max_steps": 2}}}
    )
    given(started(settings={"max_steps": 2}), changed()).project(AGENDA).then({"state": None})


def test_a_fork_owes_nothing_before_its_copy_is_whole() -> None:
    fork = (started(forked_from="0192f1a2-0000-7000-8000-00000000000f"), asked())
    given(*fork).project(AGENDA).then(NEVER)
    given(*fork, copied_whole()).project(AGENDA).then(AT_ONCE)


def test_b6_an_ended_conversation_owes_nothing() -> None:
    given(started(), asked(), finished()).project(AGENDA).then(NEVER)
