"""What happens to messages while the agent is busy, and how a turn is stopped."""

from __future__ import annotations

from typing import Any

import pytest

from domain.conversation import MAX_WAITING
from domain.errors import ConversationBusy, InvalidInput
from domain.events import (
    AssistantMsg,
    ConversationFinished,
    Resolution,
    ToolResult,
    TurnEnded,
    TurnStarted,
    UserMsg,
)
from domain.owes import AwaitInput, CallModel, CloseTurn, RunTools, StartTurn
from tests.support.given import (
    ADA,
    BEN,
    GATED_CALL,
    LATER,
    NOW,
    OPEN_TURN,
    Fact,
    Scenario,
    asked,
    called,
    claimed,
    closed,
    given,
    message,
    ran,
    reply,
    said,
    started,
    wants,
)

IDLE = (*OPEN_TURN, said(), closed())


def send(scenario: Scenario, when_busy: str = "enqueue", **fields: Any) -> Scenario:
    return scenario.when(
        lambda c: c.send_message(
            message(when_busy=when_busy, **fields), now=NOW, actor=BEN, partial_text="So far" if c.turn else None
        )
    )


@pytest.mark.parametrize("when_busy", ["enqueue", "steer", "interrupt", "reject"])
def test_b1_an_idle_conversation_answers_every_message_in_the_next_turn(when_busy: str) -> None:
    send(given(*IDLE), when_busy).then(UserMsg).and_owes(StartTurn(("m2",)))


def test_b1_an_enqueued_message_is_recorded_at_once_and_answered_in_the_next_turn() -> None:
    scenario = send(given(*OPEN_TURN)).then(UserMsg).and_owes(CallModel)
    assert scenario.conversation.queued == 1
    scenario.when(lambda c: c.record_reply(1, 1, reply(context_seq=4), now=NOW)).then(AssistantMsg, TurnEnded)
    scenario.and_owes(StartTurn(("m2",))).when(lambda c: c.start_turn(now=NOW)).and_owes(CallModel)
    assert scenario.newest(TurnStarted).answers == ["m2"]


def test_b1_an_enqueued_message_outlives_a_failed_and_a_cancelled_turn() -> None:
    send(given(*OPEN_TURN)).when(lambda c: c.fail_turn(1, 1, "auth", now=NOW)).and_owes(StartTurn(("m2",)))
    send(given(*OPEN_TURN)).when(lambda c: c.cancel(reason=None, now=NOW, actor=ADA)).and_owes(StartTurn(("m2",)))


def test_b2_a_steering_message_is_part_of_the_running_turn() -> None:
    scenario = send(given(*OPEN_TURN, said(""), called()), "steer").then(UserMsg).and_owes(RunTools)
    assert scenario.conversation.queued == 0
    scenario.when(lambda c: c.record_result(1, 1, ran(), now=NOW)).and_owes(CallModel)
    scenario.when(lambda c: c.record_reply(1, 1, reply(step=2, context_seq=c.version), now=NOW))
    scenario.then(AssistantMsg, TurnEnded).and_owes()


def test_b2_one_that_arrives_while_the_last_reply_is_written_is_still_answered() -> None:
    scenario = send(given(*OPEN_TURN), "steer")
    scenario.when(lambda c: c.record_reply(1, 1, reply(context_seq=3), now=NOW)).then(AssistantMsg).and_owes(CallModel)
    scenario.when(lambda c: c.record_reply(1, 1, reply(step=2, context_seq=5), now=NOW)).then(AssistantMsg, TurnEnded)
    scenario.and_owes()


def test_b2_one_that_no_reply_of_its_turn_saw_is_answered_by_the_next_turn() -> None:
    scenario = send(given(started(settings={"max_steps": 1}), asked(), claimed()), "steer")
    scenario.when(lambda c: c.record_reply(1, 1, reply(context_seq=3), now=NOW)).and_owes(CloseTurn("max_steps"))
    scenario.when(lambda c: c.fail_turn(1, 1, "max_steps", now=NOW)).and_owes(StartTurn(("m2",)))


def test_b3_an_interrupt_stops_the_turn_and_starts_a_new_one() -> None:
    scenario = send(given(*GATED_CALL, called("c2")), "interrupt")
    scenario.then(Resolution, ToolResult, ToolResult, TurnEnded, UserMsg).and_owes(StartTurn(("m2",)))
    ended = scenario.newest(TurnEnded)
    assert (ended.outcome, ended.reason, ended.partial_text) == ("cancelled", "interrupted", "So far")
    results = [event for event in scenario.triggered if isinstance(event, ToolResult)]
    assert [result.status for result in results] == ["cancelled", "cancelled"]


def test_b3_an_interrupt_takes_the_place_of_a_message_that_waits() -> None:
    scenario = send(given(started(), asked()), "interrupt").then(TurnStarted, TurnEnded, UserMsg)
    scenario.and_owes(StartTurn(("m2",)))
    assert scenario.newest(TurnStarted).answers == ["m1"]


def test_b3_enqueued_messages_are_answered_together_with_the_interrupting_one() -> None:
    scenario = given(*OPEN_TURN, asked("m3"))
    send(scenario, "interrupt").and_owes(StartTurn(("m3", "m2")))


@pytest.mark.parametrize("busy", [OPEN_TURN, GATED_CALL, (started(), asked())], ids=["running", "asking", "waiting"])
def test_b4_a_message_that_asks_to_be_refused_is(busy: tuple[Fact, ...]) -> None:
    send(given(*busy), "reject").then_refused(ConversationBusy)


def test_a_message_that_owes_no_answer_disturbs_nothing() -> None:
    for when_busy in ("enqueue", "steer", "interrupt", "reject"):
        send(given(*OPEN_TURN), when_busy, respond=False).then(UserMsg).and_owes(CallModel)
        scenario = send(given(*IDLE), when_busy, respond=False).then(UserMsg).and_owes()
        assert not scenario.conversation.busy


def test_a_message_id_that_waits_is_not_taken_twice() -> None:
    send(send(given(*OPEN_TURN))).then_refused(InvalidInput, "message_id")
    scenario = given(*OPEN_TURN).when(lambda c: c.send_message(message("a\x00"), now=NOW, actor=ADA))
    scenario.when(lambda c: c.send_message(message("a\x00"), now=NOW, actor=ADA)).then_refused(InvalidInput)


def test_b5_cancelling_keeps_the_partial_text_and_no_second_reply_is_taken() -> None:
    scenario = given(*OPEN_TURN).when(lambda c: c.cancel(reason=None, now=NOW, actor=ADA, partial_text="Once upon"))
    scenario.then(TurnEnded)
    assert scenario.newest(TurnEnded).partial_text == "Once upon"


def test_b5_cancelling_a_message_that_waits_answers_it_with_a_cancelled_turn() -> None:
    scenario = given(started(), asked())
    scenario.when(lambda c: c.cancel(reason=None, now=NOW, actor=ADA, partial_text="of an earlier turn"))
    scenario.then(TurnStarted, TurnEnded).and_owes()
    assert scenario.newest(TurnEnded).partial_text is None


def test_b5_there_may_be_nothing_to_cancel() -> None:
    answers: list[bool] = []
    given(*IDLE).when(lambda c: answers.append(c.cancel(reason=None, now=NOW, actor=ADA))).then_nothing()
    given(*OPEN_TURN).when(lambda c: answers.append(c.cancel(reason=None, now=NOW, actor=ADA)))
    assert answers == [False, True]


def test_b5_a_cancelled_turn_takes_nothing_of_its_worker_and_the_next_turn_is_another() -> None:
    scenario = given(*GATED_CALL).when(lambda c: c.cancel(reason=None, now=NOW, actor=ADA))
    send(scenario).when(lambda c: c.start_turn(now=NOW)).and_owes(CallModel)
    assert scenario.newest(TurnStarted).turn == 2


def test_b6_ending_stops_what_runs_and_forgets_what_waits() -> None:
    scenario = given(*GATED_CALL, asked("m2")).and_owes(AwaitInput(("c1",), LATER))
    scenario.when(lambda c: c.end(reason="done", now=NOW, actor=BEN, partial_text="So"))
    scenario.then(Resolution, ToolResult, TurnEnded, ConversationFinished).and_owes()
    assert scenario.newest(ConversationFinished).reason == "done"
    given(started(), asked()).when(lambda c: c.end(reason=None, now=NOW, actor=ADA)).then(ConversationFinished)


def test_c8_a_reply_says_what_it_saw() -> None:
    scenario = send(given(*OPEN_TURN), "steer")
    scenario.when(lambda c: c.record_reply(1, 1, reply(wants(), context_seq=3), now=NOW))
    assert scenario.newest(AssistantMsg).context_seq == 3
    assert "m2" in scenario.conversation.waiting


def test_b1_so_many_messages_wait_that_one_event_can_name_them_and_no_more() -> None:
    long_ids = [f"{n:0200}" for n in range(MAX_WAITING)]
    waiting = given(started(), *(asked(one) for one in long_ids))
    waiting.when(lambda c: c.send_message(message("one more"), now=NOW, actor=ADA)).then_refused(ConversationBusy)
    given(started(), *(asked(one) for one in long_ids)).when(lambda c: c.start_turn(now=NOW)).then(TurnStarted)
