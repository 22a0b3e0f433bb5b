"""The list of conversations: titles, settings, status, the cached state, and totals."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from domain.usage import Usage
from projections.conversations import CONVERSATIONS
from tests.support.given import (
    CONVERSATION,
    GATED_CALL,
    LATER,
    NOW,
    OPEN_TURN,
    asked,
    called,
    changed,
    claimed,
    closed,
    finished,
    history,
    resolved,
    said,
    started,
    stored,
)
from tests.support.projecting import fold_whole, given, given_log

IDLE = {"state": "idle", "pending": {}}
SOURCE = UUID("0192f1a2-0000-7000-8000-00000000000f")


def test_a_new_conversation_is_idle() -> None:
    given(started(title="Trip", settings={"model": "m"}, metadata={"a": 1}, forked_from=None)).project(
        CONVERSATIONS
    ).then(
        {
            "conversation_id": CONVERSATION,
            "tenant": "acme",
            "owner": "ada",
            "title": "Trip",
            "settings": {"model": "m"},
            "metadata": {"a": 1},
            "status": "idle",
            "fsm_state": {**IDLE, "last_seq": 1},
            "last_seq": 1,
            "created_at": NOW,
            "updated_at": NOW,
            "forked_from": None,
        }
    )


def test_changes_replace_settings_and_metadata_and_an_absent_title_stays() -> None:
    before = started(title="Trip", settings={"model": "m"}, metadata={"a": 1})
    given(before, changed(metadata={"b": 2})).project(CONVERSATIONS).then(
        {"title": "Trip", "settings": {}, "metadata": {"b": 2}}
    )
    given(before, changed(title="Tour")).project(CONVERSATIONS).then({"title": "Tour"})
    given(before, changed(title="")).project(CONVERSATIONS).then({"title": None})


def test_r2_the_cached_state_is_written_only_when_idle_or_awaiting_input() -> None:
    given(*OPEN_TURN).project(CONVERSATIONS).then({"status": "active", "fsm_state": {**IDLE, "last_seq": 1}})
    pending = {"c1": {"executor": "server", "kind": "approval", "prompt": "?", "expires_at": LATER.isoformat()}}
    awaiting = {"state": "awaiting_input", "pending": pending, "last_seq": 6}
    given(*GATED_CALL).project(CONVERSATIONS).then({"status": "suspended", "fsm_state": awaiting, "last_seq": 6})
    given(*GATED_CALL, resolved()).project(CONVERSATIONS).then(
        {"status": "active", "fsm_state": awaiting, "last_seq": 7}
    )
    given(*OPEN_TURN, said(), closed()).project(CONVERSATIONS).then(
        {"status": "idle", "fsm_state": {**IDLE, "last_seq": 5}}
    )


def test_h7_a_conversation_in_which_anything_runs_is_active() -> None:
    given(*GATED_CALL, called("c2")).project(CONVERSATIONS).then({"status": "active"})


def test_b6_ended_is_ended_though_a_message_waits() -> None:
    given(started(), asked(), finished()).project(CONVERSATIONS).then({"status": "ended"})


def test_c7_totals_add_what_was_reported() -> None:
    spent = Usage(model="m", input_tokens=10, output_tokens=2, cached_tokens=1, cost_usd=0.5)
    free = Usage(calls=2, input_tokens=1)
    given(*OPEN_TURN, said(usage=spent), said(), closed("failed", reason="r", usage=[spent, free])).project(
        CONVERSATIONS
    ).then(
        {"usage": {"calls": 4, "input_tokens": 21, "output_tokens": 4, "cached_tokens": 2, "cost_usd": 1.0}},
    )
    given(*OPEN_TURN, said(usage=free)).project(CONVERSATIONS).then(
        {"usage": {"calls": 2, "input_tokens": 1, "output_tokens": 0, "cached_tokens": 0, "cost_usd": None}},
    )


def test_a_fork_names_its_source() -> None:
    fork = started(forked_from=SOURCE, forked_seq=9)
    given(fork).project(CONVERSATIONS).then({"forked_from": SOURCE, "forked_seq": 9})


def test_newest_activity_is_the_time_of_the_newest_event() -> None:
    late = stored(history(started(), asked())[1].model_copy(update={"timestamp": NOW + timedelta(days=1)}))
    first = stored(history(started())[0])
    given_log([first, late]).project(CONVERSATIONS).then({"created_at": NOW, "updated_at": NOW + timedelta(days=1)})


def test_r4_what_a_newer_turn_has_made_an_end_of_need_not_be_readable_however_the_log_is_cut() -> None:
    facts = (*OPEN_TURN, said(), closed(), asked("m2"), claimed(), said(""), called("c1"))
    log = [stored(event) for event in history(*facts)]
    unreadable = [log[0], replace(log[1], data="{}"), *log[2:]]
    for length in range(5, len(log) + 1):  # it has rested since then, whatever else has begun
        assert fold_whole(CONVERSATIONS, unreadable[:length]) == fold_whole(CONVERSATIONS, log[:length]), length
