"""How turns start, go on and end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from domain.conversation import Conversation
from domain.errors import ConversationEnded, ConversationExists, ConversationIncomplete, Superseded
from domain.events import (
    AssistantMsg,
    ConversationChanged,
    ConversationFinished,
    ConversationStarted,
    Resolution,
    Suspension,
    ToolCall,
    ToolResult,
    ToolStep,
    TurnEnded,
    TurnResumed,
    TurnStarted,
    UserMsg,
)
from domain.owes import AwaitInput, CallModel, CloseTurn, RunTools, StartTurn
from domain.usage import Usage
from tests.support.given import (
    ADA,
    APPROVAL,
    BEN,
    CONVERSATION,
    EVE,
    GATED_CALL,
    LATER,
    NOW,
    OPEN_TURN,
    approve,
    asked,
    called,
    changed,
    claimed,
    closed,
    copied_whole,
    finished,
    given,
    got,
    message,
    ran,
    reply,
    resolved,
    resumed,
    said,
    started,
    stepped,
    suspended,
    wants,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.given import Fact


def start(c: Conversation) -> None:
    c.start(tenant="acme", owner="ada", title="A", settings={"model": "m"}, metadata={"k": 1}, now=NOW, actor=ADA)


def test_a_conversation_starts_once_and_owes_nothing() -> None:
    given().when(start).then(ConversationStarted).and_owes().when(start).then_refused(ConversationExists)


def test_what_it_started_with_is_its_state() -> None:
    conversation = given().when(start).conversation
    assert (conversation.tenant, conversation.owner) == ("acme", "ada")
    assert (conversation.settings, conversation.metadata, conversation.settings_seq) == ({"model": "m"}, {"k": 1}, 1)


def test_a_message_owes_a_turn_that_answers_it_then_a_model_call() -> None:
    scenario = given(started(), asked("m1"), asked("m2")).and_owes(StartTurn(("m1", "m2")))
    scenario.when(lambda c: c.start_turn(now=NOW)).then(TurnStarted).and_owes(CallModel)
    turn = scenario.newest(TurnStarted)
    assert (turn.turn, turn.answers, turn.settings_seq) == (1, ["m1", "m2"], 1)


def test_a_turn_is_not_started_twice_nor_for_nothing() -> None:
    given(*OPEN_TURN).when(lambda c: c.start_turn(now=NOW)).then_refused(Superseded)
    given(started()).when(lambda c: c.start_turn(now=NOW)).then_refused(Superseded)
    given(started(), asked(), finished()).when(lambda c: c.start_turn(now=NOW)).then_refused(Superseded)


def test_settings_act_from_the_next_turn() -> None:
    scenario = given(
        started(settings={"max_steps": 1}), asked(), claimed(), changed(settings={"max_steps": 9}), said("")
    ).and_owes(CloseTurn("max_steps"))
    scenario.when(lambda c: c.fail_turn(1, 1, "max_steps", now=NOW)).when(
        lambda c: c.send_message(message(), now=NOW, actor=ADA)
    ).when(lambda c: c.start_turn(now=NOW))
    assert scenario.newest(TurnStarted).settings_seq == 4
    assert scenario.conversation.turn is not None
    assert scenario.conversation.turn.settings == {"max_steps": 9}


def test_a_change_is_recorded_whole() -> None:
    scenario = given(started()).when(
        lambda c: c.change(title="New", settings={"model": "n"}, metadata={}, now=NOW, actor=ADA)
    )
    scenario.then(ConversationChanged)
    assert scenario.conversation.settings == {"model": "n"}


def test_t1_a_reply_without_calls_ends_the_turn() -> None:
    scenario = given(*OPEN_TURN).when(lambda c: c.record_reply(1, 1, reply(), now=NOW))
    scenario.then(AssistantMsg, TurnEnded).and_owes()
    assert scenario.newest(TurnEnded).outcome == "completed"


def test_t1_provider_trouble_is_failed_and_the_conversation_takes_the_next_message() -> None:
    usage = [Usage(model="m", input_tokens=7)]
    scenario = given(*OPEN_TURN).when(lambda c: c.fail_turn(1, 1, "rate_limited", now=NOW, usage=usage))
    scenario.then(TurnEnded).and_owes()
    ended = scenario.newest(TurnEnded)
    assert (ended.outcome, ended.reason, ended.usage) == ("failed", "rate_limited", usage)
    scenario.when(lambda c: c.send_message(message(), now=NOW, actor=ADA)).then(UserMsg).and_owes(StartTurn(("m2",)))


def test_t1_a_cancel_ends_the_turn_as_cancelled_by_whom_it_was() -> None:
    scenario = given(*OPEN_TURN).when(lambda c: c.cancel(reason="enough", now=NOW, actor=BEN, partial_text="Well"))
    scenario.then(TurnEnded).and_owes()
    ended = scenario.newest(TurnEnded)
    assert (ended.outcome, ended.reason, ended.partial_text, ended.actor) == ("cancelled", "enough", "Well", BEN)


def test_t1_an_ended_conversation_leaves_no_turn_open() -> None:
    scenario = given(*GATED_CALL).when(lambda c: c.end(reason=None, now=NOW, actor=ADA))
    scenario.then(Resolution, ToolResult, TurnEnded, ConversationFinished).and_owes()


def test_t1_nothing_goes_on_in_a_turn_that_has_ended() -> None:
    for command in of_a_worker():
        given(*OPEN_TURN, said(""), called(), got(), closed()).when(command).then_refused(Superseded)


def test_t2_a_reply_its_calls_suspensions_and_impossible_results_are_one_decision() -> None:
    said_all = reply(
        wants("c1"),
        wants("c2", gated=True, inquiry=APPROVAL),
        wants("c3", name="nope", error="There is no tool nope."),
    )
    scenario = given(*OPEN_TURN).when(lambda c: c.record_reply(1, 1, said_all, now=NOW))
    scenario.then(AssistantMsg, ToolCall, ToolCall, ToolCall, Suspension, ToolResult)
    scenario.and_owes(RunTools(("c1",)), AwaitInput(("c2",), LATER))
    assert scenario.result_of("c3") == "There is no tool nope."


def test_t11_when_no_call_of_a_reply_can_run_the_model_is_called_again() -> None:
    said_all = reply(wants("c1", error="no"), wants("c2", error="no"))
    given(*OPEN_TURN).when(lambda c: c.record_reply(1, 1, said_all, now=NOW)).and_owes(CallModel)


def test_t11_no_model_call_while_any_call_is_open_and_no_reply_is_taken() -> None:
    scenario = given(*OPEN_TURN, said(""), called("c1"), called("c2"), got("c1")).and_owes(RunTools(("c2",)))
    scenario.when(lambda c: c.record_reply(1, 1, reply(step=2), now=NOW)).then_refused(Superseded)
    scenario.when(lambda c: c.record_result(1, 1, ran("c2"), now=NOW)).then(ToolResult).and_owes(CallModel)


@pytest.mark.parametrize("outcome", ["failed", "cancelled"])
def test_t11_a_turn_that_stops_closes_every_open_call(outcome: str) -> None:
    scenario = given(*GATED_CALL[:4], called("c1", gated=True), called("c2"), suspended("c1"), called("c3"), got("c3"))
    if outcome == "failed":
        scenario.when(lambda c: c.fail_turn(1, 1, "auth", now=NOW))
    else:
        scenario.when(lambda c: c.cancel(reason=None, now=NOW, actor=ADA))
    scenario.then(Resolution, ToolResult, ToolResult, TurnEnded).and_owes()
    assert scenario.newest(Resolution).outcome == "cancelled"
    assert scenario.newest(ToolResult).status == ("error" if outcome == "failed" else "cancelled")
    assert "may have taken effect" in scenario.result_of("c2")
    assert "may have taken effect" not in scenario.result_of("c1")


def test_t11_a_result_is_taken_once() -> None:
    scenario = given(*OPEN_TURN, said(""), called()).when(lambda c: c.record_result(1, 1, ran(), now=NOW))
    scenario.then(ToolResult).when(lambda c: c.record_result(1, 1, ran(), now=NOW)).then_refused(Superseded)


def test_t11_a_call_that_nobody_could_answer_is_an_error_of_the_program() -> None:
    for nonsense in (wants(gated=True), wants(executor="human"), wants(executor="client")):
        command = partial(Conversation.record_reply, turn=1, attempt=1, reply=reply(nonsense), now=NOW)
        given(*OPEN_TURN).when(command).then_refused(ValueError)


def test_t12_the_same_provider_ids_in_every_reply_stay_different_calls() -> None:
    scenario = given(*OPEN_TURN).when(lambda c: c.record_reply(1, 1, reply(wants("c1"), wants("c2")), now=NOW))
    scenario.when(lambda c: c.record_result(1, 1, ran("c2", text="two"), now=NOW))
    scenario.when(lambda c: c.record_result(1, 1, ran("c1", text="one"), now=NOW))
    scenario.when(lambda c: c.record_reply(1, 1, reply(wants("c3"), step=2), now=NOW)).and_owes(RunTools(("c3",)))
    assert (scenario.result_of("c1"), scenario.result_of("c2")) == ("one", "two")


def test_t8_five_takeovers_without_progress_fail_the_turn() -> None:
    scenario = given(*OPEN_TURN, *[resumed()] * 4).and_owes(CallModel)
    scenario.when(lambda c: c.resume_turn(1, 5, now=NOW)).then(TurnResumed).and_owes(CloseTurn("max_attempts"))
    scenario.when(lambda c: c.fail_turn(1, 6, "max_attempts", now=NOW)).then(TurnEnded).and_owes()
    scenario.when(lambda c: c.send_message(message(), now=NOW, actor=ADA)).and_owes(StartTurn)


def test_t8_the_setting_max_attempts_counts() -> None:
    given(started(settings={"max_attempts": 2}), asked(), claimed(), resumed()).and_owes(CallModel).when(
        lambda c: c.resume_turn(1, 2, now=NOW)
    ).and_owes(CloseTurn("max_attempts"))


@pytest.mark.parametrize(
    ("before", "progress"),
    [
        ((), (said(""),)),
        ((said(""), called()), (stepped(),)),
        ((said(""), called()), (got(),)),
        ((said(""), called(gated=True), suspended()), (resolved(),)),
    ],
    ids=["reply", "step", "result", "resolution"],
)
def test_t8_progress_starts_the_count_again(before: tuple[Fact, ...], progress: tuple[Fact, ...]) -> None:
    almost = (*OPEN_TURN, *before, *[resumed()] * 4)
    given(*almost, resumed()).and_owes(CloseTurn("max_attempts"))
    scenario = given(*almost, *progress, resumed())
    assert scenario.conversation.turn is not None
    assert scenario.conversation.turn.resumes == 1


def test_t8_six_approvals_in_a_row_never_fail_the_turn() -> None:
    scenario = given(*OPEN_TURN)
    for n in range(1, 7):
        asks = reply(wants(f"c{n}", gated=True, inquiry=APPROVAL), step=n)
        scenario.when(partial(Conversation.record_reply, turn=1, attempt=n, reply=asks, now=NOW))
        scenario.when(partial(Conversation.resume_turn, turn=1, attempt=n, now=NOW)).and_owes(AwaitInput)
        scenario.when(partial(Conversation.resolve, decision=approve(f"c{n}"), now=NOW, actor=ADA))
        scenario.and_owes(RunTools((f"c{n}",)))
        scenario.when(partial(Conversation.record_result, turn=1, attempt=n + 1, outcome=ran(f"c{n}"), now=NOW))
        scenario.and_owes(CallModel)
    scenario.when(lambda c: c.record_reply(1, 7, reply(step=7), now=NOW)).then(AssistantMsg, TurnEnded)


def test_t7_a_superseded_worker_decides_nothing_any_more() -> None:
    for command in of_a_worker():
        given(*OPEN_TURN, resumed()).when(command).then_refused(Superseded)
        given(*OPEN_TURN, said(""), called(), resumed()).when(command).then_refused(Superseded)


def test_t10_more_model_calls_than_max_steps_end_the_turn() -> None:
    steps = [fact for n in range(25) for fact in (said(""), called(f"c{n}"), got(f"c{n}"))]
    given(*OPEN_TURN, *steps[:-3]).and_owes(CallModel)
    scenario = given(*OPEN_TURN, *steps).and_owes(CloseTurn("max_steps"))
    scenario.when(lambda c: c.fail_turn(1, 1, "max_steps", now=NOW)).then(TurnEnded).and_owes()
    assert (scenario.newest(TurnEnded).outcome, scenario.newest(TurnEnded).reason) == ("failed", "max_steps")


def test_t10_results_of_the_last_step_are_still_awaited() -> None:
    given(started(settings={"max_steps": 1}), asked(), claimed(), said(""), called()).and_owes(RunTools(("c1",)))


def test_t13_a_step_is_recorded_once_per_name_and_number() -> None:
    scenario = given(*OPEN_TURN, said(""), called())
    scenario.when(lambda c: c.record_step(1, 1, "c1", "draft", 1, {"a": 1}, now=NOW)).then(ToolStep)
    scenario.when(lambda c: c.record_step(1, 1, "c1", "draft", 1, "other", now=NOW)).then_refused(Superseded)
    scenario.when(lambda c: c.record_step(1, 1, "c1", "draft", 2, None, now=NOW)).then(ToolStep)
    scenario.when(lambda c: c.record_step(1, 1, "c1", "send", 1, None, now=NOW)).then(ToolStep)
    assert scenario.conversation.calls["c1"].steps == {"draft": 2, "send": 1}


def test_t13_nothing_is_recorded_of_a_call_that_waits_or_has_its_result() -> None:
    for log in (GATED_CALL, (*OPEN_TURN, said(""), called(), got())):
        given(*log).when(lambda c: c.record_step(1, 1, "c1", "draft", 1, 1, now=NOW)).then_refused(Superseded)
        given(*log).when(lambda c: c.record_result(1, 1, ran(), now=NOW)).then_refused(Superseded)


def test_l13_a_message_appended_during_a_turn_never_costs_the_reply() -> None:
    meanwhile = given(*OPEN_TURN, asked("m2"), changed(title="T"))
    meanwhile.when(lambda c: c.record_reply(1, 1, reply(context_seq=3), now=NOW)).then(AssistantMsg, TurnEnded)
    meanwhile.and_owes(StartTurn(("m2",)))


def test_l13_of_two_workers_deciding_the_same_only_the_first_is_recorded() -> None:
    scenario = given(*OPEN_TURN).when(lambda c: c.record_reply(1, 1, reply(wants()), now=NOW))
    scenario.when(lambda c: c.record_reply(1, 1, reply(wants("other")), now=NOW)).then_refused(Superseded)
    scenario.when(lambda c: c.resume_turn(1, 1, now=NOW)).then(TurnResumed)
    scenario.when(lambda c: c.resume_turn(1, 1, now=NOW)).then_refused(Superseded)


def test_l13_sibling_results_and_resolutions_do_not_exclude_each_other() -> None:
    scenario = given(*GATED_CALL, called("c2"))
    scenario.when(lambda c: c.resolve(approve(), now=NOW, actor=ADA)).then(Resolution)
    scenario.when(lambda c: c.record_result(1, 1, ran("c2"), now=NOW)).then(ToolResult).and_owes(RunTools(("c1",)))


def test_b6_an_ended_conversation_refuses_every_command_of_people() -> None:
    for command in of_people():
        given(started(), finished()).when(command).then_refused(ConversationEnded)


def test_a_fork_whose_copy_is_not_whole_refuses_commands_and_owes_nothing() -> None:
    fork = started(forked_from=CONVERSATION, forked_seq=9)
    for command in of_people():
        given(fork, asked()).and_owes().when(command).then_refused(ConversationIncomplete)
    given(fork, asked(), copied_whole()).and_owes(StartTurn)


def test_everything_of_a_turn_has_its_correlation_id_and_a_cause() -> None:
    scenario = given(started()).when(lambda c: c.send_message(message("m1"), now=NOW, actor=EVE))
    scenario.when(lambda c: c.start_turn(now=NOW))
    asked_event, turn = scenario.newest(UserMsg), scenario.newest(TurnStarted)
    scenario.when(
        lambda c: c.record_reply(1, 1, reply(wants(gated=True, inquiry=APPROVAL), context_seq=c.version), now=NOW)
    )
    said_event, call, suspension = scenario.triggered
    scenario.when(lambda c: c.send_message(message("m2"), now=NOW, actor=BEN))
    scenario.when(lambda c: c.resolve(approve(), now=NOW, actor=BEN))
    scenario.when(lambda c: c.record_result(1, 1, ran(), now=NOW))
    resolution, result = scenario.newest(Resolution), scenario.newest(ToolResult)
    scenario.when(lambda c: c.record_reply(1, 1, reply(step=2), now=NOW))
    last, ended = scenario.triggered

    assert asked_event.correlation_id == asked_event.event_id
    assert scenario.newest(UserMsg).correlation_id == scenario.newest(UserMsg).event_id
    of_turn = [turn, said_event, call, suspension, resolution, result, last, ended]
    assert {event.correlation_id for event in of_turn} == {turn.event_id}
    causes = [event.causation_id for event in of_turn]
    assert causes == [
        asked_event.event_id,
        turn.event_id,
        said_event.event_id,
        call.event_id,
        suspension.event_id,
        resolution.event_id,
        result.event_id,
        last.event_id,
    ]
    assert (turn.actor, said_event.actor, resolution.actor, result.actor) == (EVE, EVE, BEN, BEN)


def of_a_worker() -> list[Callable[[Conversation], object]]:
    return [
        lambda c: c.record_reply(1, 1, reply(), now=NOW),
        lambda c: c.record_reply(1, 1, reply(step=2), now=NOW),
        lambda c: c.record_step(1, 1, "c1", "draft", 1, 1, now=NOW),
        lambda c: c.record_result(1, 1, ran(), now=NOW),
        lambda c: c.resume_turn(1, 1, now=NOW),
        lambda c: c.fail_turn(1, 1, "auth", now=NOW),
    ]


def of_people() -> list[Callable[[Conversation], object]]:
    return [
        lambda c: c.send_message(message(), now=NOW, actor=ADA),
        lambda c: c.change(title="T", settings={}, metadata={}, now=NOW, actor=ADA),
        lambda c: c.resolve(approve(), now=NOW, actor=ADA),
        lambda c: c.cancel(reason=None, now=NOW, actor=ADA),
        lambda c: c.end(reason=None, now=NOW, actor=ADA),
    ]
