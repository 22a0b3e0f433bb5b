"""What people decide: approvals, edits, rejections, answers, deadlines."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from itertools import permutations

import pytest

from domain.conversation import Conversation
from domain.decisions import Decision, Inquiry, Rescheduling
from domain.errors import InvalidInput, StaleResolution, Superseded
from domain.events import AssistantMsg, Resolution, Suspension, ToolCall, ToolResult, UserMsg
from domain.owes import AwaitInput, CallModel, Expire, RunTools, StartTurn
from domain.scope import SYSTEM
from tests.support.given import (
    ADA,
    APPROVAL,
    BEN,
    ELICITATION,
    EVE,
    GATED_CALL,
    IN_BROWSER,
    LATER,
    NOW,
    OPEN_TURN,
    Fact,
    Scenario,
    answer,
    approve,
    asked,
    called,
    claimed,
    edit,
    given,
    got,
    message,
    ran,
    reject,
    reply,
    resolved,
    said,
    started,
    suspended,
    wants,
)

GATED_CLIENT_CALL = (*OPEN_TURN, said(""), called(executor="client", gated=True), suspended(expires_at=LATER))
HUMAN_CALL = (*OPEN_TURN, said(""), called(executor="human"), suspended(kind="elicitation", expires_at=LATER))


def resolve(scenario: Scenario, decision: Decision, *, at: datetime = NOW) -> Scenario:
    return scenario.when(lambda c: c.resolve(decision, now=at, actor=BEN))


def test_h1_a_gated_call_parks_and_does_not_run_before_its_approval() -> None:
    asks = reply(wants(gated=True, inquiry=APPROVAL))
    scenario = given(*OPEN_TURN).when(lambda c: c.record_reply(1, 1, asks, now=NOW))
    scenario.then(AssistantMsg, ToolCall, Suspension).and_owes(AwaitInput(("c1",), LATER))
    scenario.when(lambda c: c.record_result(1, 1, ran(), now=NOW)).then_refused(Superseded)
    resolve(scenario, approve()).then(Resolution).and_owes(RunTools(("c1",)))


def test_h1_a_rejected_tool_never_runs_and_the_model_reads_the_reason() -> None:
    scenario = resolve(given(*GATED_CALL), reject(reason="too dear"))
    scenario.then(Resolution, ToolResult).and_owes(CallModel)
    assert "too dear" in scenario.result_of("c1")
    assert scenario.newest(ToolResult).status == "rejected"
    scenario.when(lambda c: c.record_result(1, 1, ran(), now=NOW)).then_refused(Superseded)


@pytest.mark.parametrize("first", [approve(), reject(), edit(args={"a": 2})])
@pytest.mark.parametrize("second", [approve(), reject(), edit(args={"a": 3}), answer()])
def test_h2_one_of_racing_resolutions_wins(first: Decision, second: Decision) -> None:
    resolve(resolve(given(*GATED_CALL), first), second).then_refused(StaleResolution)


def test_h2_unknown_resolved_expired_and_cancelled_calls_are_stale() -> None:
    resolve(given(*GATED_CALL), approve("nope")).then_refused(StaleResolution)
    resolve(given(*OPEN_TURN, said(""), called()), approve()).then_refused(StaleResolution)
    resolve(given(*GATED_CALL, resolved("c1", "rejected"), got("c1", "rejected")), approve()).then_refused(
        StaleResolution
    )
    expired = given(*GATED_CALL).when(lambda c: c.expire(["c1"], now=LATER))
    resolve(expired, approve()).then_refused(StaleResolution)
    cancelled = given(*GATED_CALL).when(lambda c: c.cancel(reason=None, now=NOW, actor=ADA))
    resolve(cancelled, approve()).then_refused(StaleResolution)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_h3_three_decisions_in_any_order_land_on_their_own_calls(order: tuple[int, ...]) -> None:
    calls = [wants(f"c{n}", gated=True, inquiry=APPROVAL) for n in (1, 2, 3)]
    scenario = given(*OPEN_TURN).when(lambda c: c.record_reply(1, 1, reply(*calls), now=NOW))
    decisions = [reject("c1", reason="no"), edit("c2", args={"a": 2}), approve("c3")]
    for n, index in enumerate(order):
        resolve(scenario, decisions[index])
        pending = tuple(f"c{i + 1}" for i in range(3) if i not in order[: n + 1])
        waiting = [item for item in (AwaitInput(pending, LATER),) if pending]
        running = tuple(f"c{i + 1}" for i in (1, 2) if i in order[: n + 1])
        scenario.and_owes(*[RunTools(running)] if running else [], *waiting)
    assert scenario.conversation.calls["c2"].args == {"a": 2}
    assert scenario.conversation.calls["c3"].args == {"a": 1}
    scenario.when(lambda c: c.record_result(1, 1, ran("c3"), now=NOW)).and_owes(RunTools(("c2",)))
    scenario.when(lambda c: c.record_result(1, 1, ran("c2"), now=NOW)).and_owes(CallModel)


def test_h4_a_message_while_decisions_are_outstanding_loses_none_and_is_answered() -> None:
    scenario = given(*GATED_CALL).when(lambda c: c.send_message(message(), now=NOW, actor=ADA)).then(UserMsg)
    scenario.and_owes(AwaitInput(("c1",), LATER))
    resolve(scenario, reject()).and_owes(CallModel)
    scenario.when(lambda c: c.record_reply(1, 1, reply(step=2), now=NOW)).and_owes(StartTurn(("m2",)))


def test_h5_an_edit_keeps_the_original_and_says_who_what_and_why() -> None:
    scenario = resolve(given(*GATED_CALL), edit(args={"a": 2}, reason="cheaper"))
    scenario.then(Resolution).and_owes(RunTools(("c1",)))
    resolution = scenario.newest(Resolution)
    assert (resolution.outcome, resolution.args, resolution.reason) == ("edited", {"a": 2}, "cheaper")
    assert (resolution.by, resolution.timestamp) == (BEN, NOW)
    assert scenario.newest(ToolCall).args == {"a": 1}
    assert scenario.conversation.calls["c1"].args == {"a": 2}


def test_h5_after_an_edit_the_result_says_which_arguments_ran() -> None:
    scenario = resolve(given(*GATED_CALL), edit(args={"a": 2}))
    scenario.when(lambda c: c.record_result(1, 1, ran(text="sent"), now=NOW))
    assert '{"a":2}' in scenario.result_of("c1")
    assert scenario.result_of("c1").endswith("sent")


def test_h5_after_an_edit_a_clients_answer_says_which_arguments_ran() -> None:
    scenario = resolve(given(*GATED_CLIENT_CALL), edit(args={"a": 2}, inquiry=IN_BROWSER))
    resolve(scenario, answer(said=[52.5, 13.4])).then(Resolution, ToolResult)
    assert '{"a":2}' in scenario.result_of("c1")
    assert scenario.result_of("c1").endswith("[52.5,13.4]")


@pytest.mark.parametrize(
    ("log", "wrong"),
    [
        (GATED_CALL, [answer()]),
        (HUMAN_CALL, [approve(), edit(args={})]),
        ((*OPEN_TURN, said(""), called(executor="client"), suspended(kind="client")), [approve(), edit(args={})]),
    ],
    ids=["approval", "elicitation", "client"],
)
def test_h2_a_decision_of_the_wrong_kind_is_stale(log: tuple[Fact, ...], wrong: list[Decision]) -> None:
    for decision in wrong:
        resolve(given(*log), decision).then_refused(StaleResolution, "waits for one of")


def test_h6_an_answer_is_the_result() -> None:
    scenario = resolve(given(*HUMAN_CALL), answer(said="Paris")).then(Resolution, ToolResult).and_owes(CallModel)
    assert (scenario.result_of("c1"), scenario.newest(ToolResult).status) == ("Paris", "ok")
    assert (scenario.newest(Resolution).outcome, scenario.newest(Resolution).answer) == ("answered", "Paris")
    assert resolve(given(*HUMAN_CALL), answer(said={"a": None})).result_of("c1") == '{"a":null}'


def test_h7_server_results_arrive_while_a_person_is_pending() -> None:
    asks = reply(wants("c1", executor="human", inquiry=ELICITATION), wants("c2"), wants("c3"))
    scenario = given(*OPEN_TURN).when(lambda c: c.record_reply(1, 1, asks, now=NOW))
    scenario.and_owes(RunTools(("c2", "c3")), AwaitInput(("c1",), LATER))
    scenario.when(lambda c: c.record_result(1, 1, ran("c2"), now=NOW))
    scenario.when(lambda c: c.record_result(1, 1, ran("c3", "error"), now=NOW)).and_owes(AwaitInput(("c1",), LATER))
    resolve(scenario, answer("c1")).and_owes(CallModel)


def test_h8_a_gated_client_tool_suspends_twice_on_one_id() -> None:
    scenario = resolve(given(*GATED_CLIENT_CALL), approve(inquiry=IN_BROWSER)).then(Resolution, Suspension)
    scenario.and_owes(AwaitInput(("c1",), NOW + timedelta(hours=2)))
    resolve(scenario, approve(inquiry=IN_BROWSER)).then_refused(StaleResolution)
    resolve(scenario, answer()).then(Resolution, ToolResult).and_owes(CallModel)


def test_h8_a_client_tool_that_is_known_no_longer_still_waits_for_its_client() -> None:
    resolve(given(*GATED_CLIENT_CALL), approve()).then(Resolution, Suspension).and_owes(AwaitInput(("c1",), None))


def test_h8_a_client_call_can_be_rejected_at_either_question() -> None:
    resolve(given(*GATED_CLIENT_CALL), reject()).then(Resolution, ToolResult).and_owes(CallModel)
    approved = resolve(given(*GATED_CLIENT_CALL), approve(inquiry=IN_BROWSER))
    resolve(approved, reject(reason="no GPS")).then(Resolution, ToolResult).and_owes(CallModel)


def test_h9_at_its_deadline_a_call_expires_as_the_system_and_the_turn_goes_on() -> None:
    scenario = given(*GATED_CALL).and_owes(AwaitInput(("c1",), LATER), at=LATER - timedelta(microseconds=1))
    scenario.and_owes(Expire(("c1",)), at=LATER)
    scenario.when(lambda c: c.expire(["c1"], now=LATER)).then(Resolution, ToolResult).and_owes(CallModel, at=LATER)
    resolution, result = scenario.newest(Resolution), scenario.newest(ToolResult)
    assert (resolution.outcome, result.status) == ("expired", "expired")
    assert {resolution.by, resolution.actor, result.actor} == {SYSTEM}


def test_h9_a_late_answer_is_stale_recorded_or_not() -> None:
    resolve(given(*GATED_CALL), approve(), at=LATER).then_refused(StaleResolution)
    scenario = given(*GATED_CALL).when(lambda c: c.reschedule(Rescheduling("c1", None), now=LATER, actor=ADA))
    scenario.then_refused(StaleResolution)


def test_h9_expiring_what_is_not_due_or_open_records_nothing() -> None:
    given(*GATED_CALL).when(lambda c: c.expire(["c1", "nope"], now=NOW)).then_nothing()
    given(*GATED_CALL, resolved()).when(lambda c: c.expire(["c1"], now=LATER)).then_nothing()
    given(*OPEN_TURN, said(""), called(), suspended()).when(lambda c: c.expire(["c1"], now=LATER)).then_nothing()
    given(started()).when(lambda c: c.expire(["c1"], now=LATER)).then_nothing()


def test_h9_only_what_is_due_expires_and_the_next_deadline_is_named() -> None:
    soon = NOW + timedelta(minutes=1)
    scenario = given(*GATED_CALL, called("c2", gated=True), suspended("c2", expires_at=soon))
    scenario.and_owes(AwaitInput(("c1", "c2"), soon)).and_owes(Expire(("c2",)), AwaitInput(("c1",), LATER), at=soon)
    scenario.when(lambda c: c.expire(["c1", "c2"], now=soon)).then(Resolution, ToolResult)
    assert scenario.newest(ToolResult).tool_call_id == "c2"


@pytest.mark.parametrize("until", [LATER + timedelta(hours=5), None])
def test_h10_rescheduling_replaces_the_deadline(until: datetime | None) -> None:
    scenario = given(*GATED_CALL).when(lambda c: c.reschedule(Rescheduling("c1", until), now=NOW, actor=BEN))
    scenario.then(Suspension).and_owes(AwaitInput(("c1",), until), at=LATER)
    asked_before, asked_now = (event for event in scenario.log if isinstance(event, Suspension))
    assert (asked_now.kind, asked_now.prompt) == (asked_before.kind, asked_before.prompt)
    scenario.when(lambda c: c.expire(["c1"], now=LATER)).then_nothing()
    resolve(scenario, approve(), at=LATER).then(Resolution)


def test_h10_a_deadline_may_be_brought_forward() -> None:
    sooner = NOW + timedelta(seconds=1)
    scenario = given(*GATED_CALL).when(lambda c: c.reschedule(Rescheduling("c1", sooner), now=NOW, actor=BEN))
    scenario.and_owes(Expire(("c1",)), at=sooner)


def test_h10_only_what_waits_is_rescheduled_and_only_to_a_time_with_its_zone() -> None:
    naive = partial(Conversation.reschedule, now=NOW, actor=ADA)
    given(*GATED_CALL).when(partial(naive, rescheduling=Rescheduling("nope", LATER))).then_refused(StaleResolution)
    given(*GATED_CALL).when(partial(naive, rescheduling=Rescheduling("c1", LATER.replace(tzinfo=None)))).then_refused(
        InvalidInput, "expires_at"
    )


def test_h10_the_second_suspension_is_not_hit_by_the_first_ones_deadline() -> None:
    scenario = resolve(given(*GATED_CLIENT_CALL), approve(inquiry=IN_BROWSER))
    scenario.and_owes(AwaitInput(("c1",), NOW + timedelta(hours=2)), at=LATER)
    scenario.when(lambda c: c.expire(["c1"], now=LATER)).then_nothing()


def test_h10_a_resolved_call_does_not_expire() -> None:
    resolve(given(*GATED_CALL), approve()).and_owes(RunTools(("c1",)), at=LATER)


def test_h11_a_tool_runs_as_its_approver_else_as_the_author_of_the_newest_message() -> None:
    log = given(started(), asked("m1", by=ADA), asked("m2", by=EVE), claimed(), said(""), called("c1"), called("c2"))
    assert log.conversation.acting_for(log.conversation.calls["c1"]) == EVE
    approved = resolve(given(*GATED_CALL), approve())
    assert approved.conversation.acting_for(approved.conversation.calls["c1"]) == BEN
    approved.when(lambda c: c.record_result(1, 1, ran(), now=NOW))
    assert approved.newest(ToolResult).actor == BEN


def test_h11_after_a_takeover_a_tool_runs_as_the_same_person() -> None:
    log = given(
        started(), asked("m1", by=ADA), claimed(), said(""), called("c1", gated=True), called("c2"), suspended()
    )
    approved = resolve(log, approve()).when(lambda c: c.resume_turn(1, 1, now=LATER))
    calls = approved.conversation.calls
    assert [approved.conversation.acting_for(calls[call]).id for call in ("c1", "c2")] == ["ben", "ada"]


def test_h11_who_steers_is_who_the_next_calls_run_as() -> None:
    scenario = given(*OPEN_TURN, asked("m2", by=EVE, when_busy="steer"))
    scenario.when(lambda c: c.record_reply(1, 1, reply(wants(), context_seq=4), now=NOW))
    assert scenario.newest(ToolCall).actor == EVE
    assert scenario.conversation.acting_for(scenario.conversation.calls["c1"]) == EVE


def test_h11_a_question_with_no_timeout_never_expires() -> None:
    asks = reply(wants(gated=True, inquiry=Inquiry("approval", "?", None, 0)))
    scenario = given(*OPEN_TURN).when(lambda c: c.record_reply(1, 1, asks, now=NOW))
    scenario.and_owes(AwaitInput(("c1",), None), at=NOW + timedelta(days=3650))
