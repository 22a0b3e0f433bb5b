"""What a conversation has used: kept from turn to turn, and the limits that end a turn before its next model call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from domain.conversation import Conversation
from domain.events import AssistantMsg, TurnEnded, TurnStarted, UsageReported
from domain.owes import CallModel, CloseTurn, RunTools, StartTurn
from domain.scope import SYSTEM
from domain.usage import Usage
from projections.open_state import keep_state, load_state, owed_at_any_time
from tests.support.conversation_rules import loaded_from_tail
from tests.support.given import (
    CONVERSATION,
    NOW,
    OPEN_TURN,
    asked,
    called,
    changed,
    claimed,
    closed,
    finished,
    given,
    got,
    history,
    message,
    reply,
    reported,
    said,
    started,
)

if TYPE_CHECKING:
    from domain.event_envelope import ConversationEvent

CALL = Usage(model="m", input_tokens=90, output_tokens=10, cost_usd=0.25)
STEP = (said("", usage=CALL), called(), got())


def over(detail: str) -> CloseTurn:
    """Say how a turn ends that has used its budget."""
    return CloseTurn("budget", detail)


TOKENS = over("100 of 100 tokens of this turn")


@pytest.mark.parametrize(
    ("settings", "steps", "owed"),
    [
        ({"max_tokens_per_turn": 100}, 0, CallModel()),
        ({"max_tokens_per_turn": 101}, 1, CallModel()),
        ({"max_tokens_per_turn": 100}, 1, TOKENS),
        ({"max_tokens_per_turn": 101}, 2, over("200 of 101 tokens of this turn")),
        ({"max_cost_usd": 0.26}, 1, CallModel()),
        ({"max_cost_usd": 0.25}, 1, over("0.25 of 0.25 USD of this conversation")),
        ({"max_cost_usd": 0.26, "max_tokens_per_turn": 1_000}, 2, over("0.50 of 0.26 USD of this conversation")),
        ({"max_cost_usd": 0.000512}, 4, over("1.00 of 0.000512 USD of this conversation")),
        ({}, 9, CallModel()),
    ],
)
def test_a_turn_that_has_used_its_budget_makes_no_further_call(
    settings: dict[str, object], steps: int, owed: CallModel | CloseTurn
) -> None:
    given(started(settings=settings), asked(), claimed(), *STEP * steps).and_owes(owed)


def test_a_reply_that_goes_beyond_the_budget_still_completes_its_turn() -> None:
    limits = started(settings={"max_tokens_per_turn": 1, "max_cost_usd": 0.01})
    given(limits, asked(), claimed()).when(lambda c: c.record_reply(1, 1, replace(reply(), usage=CALL), now=NOW)).then(
        AssistantMsg, TurnEnded
    ).and_owes()


def test_the_next_turn_has_its_tokens_again_but_what_the_conversation_cost_stays_spent() -> None:
    failed = (*STEP, closed("failed", reason="budget"))
    again = (asked("m2"), claimed())
    given(started(settings={"max_tokens_per_turn": 100}), asked(), claimed(), *failed, *again).and_owes(CallModel())

    spent = given(started(settings={"max_cost_usd": 0.25}), asked(), claimed(), *failed, asked("m2"))
    begun = spent.when(lambda c: c.start_turn(now=NOW)).then(TurnStarted)
    begun.and_owes(over("0.25 of 0.25 USD of this conversation"))
    assert begun.newest(TurnStarted).spent_usd == 0.25


def test_a_higher_limit_lets_the_conversation_go_on() -> None:
    failed = (started(settings={"max_cost_usd": 0.25}), asked(), claimed(), *STEP, closed("failed", reason="budget"))
    given(*failed, changed(settings={"max_cost_usd": 1}), asked("m2")).and_owes(StartTurn(("m2",))).when(
        lambda c: c.start_turn(now=NOW)
    ).and_owes(CallModel())


def test_r3_what_was_spent_is_known_from_the_newest_turn_on() -> None:
    log = history(
        *OPEN_TURN,
        *STEP,
        closed("failed", reason="auth", usage=[CALL, Usage(model="free")]),
        changed(title="Trip", usage=CALL),
    )
    conversation = Conversation.at(CONVERSATION).fold(log)
    conversation.send_message(message(), now=NOW, actor=SYSTEM)
    conversation.start_turn(now=NOW)
    log += cast("list[ConversationEvent]", list(conversation.collect_events()))

    assert conversation.spent_usd == 0.75
    assert loaded_from_tail(log).spent_usd == 0.75


def test_what_a_fork_copied_was_paid_elsewhere() -> None:
    copies = [event.model_copy(update={"copied_from": event.event_id}) for event in history(*OPEN_TURN, *STEP)]
    assert Conversation.at(CONVERSATION).fold(copies).spent_usd == 0


def test_c7_usage_is_recorded_late_without_disturbing_anything() -> None:
    before = given(*OPEN_TURN).conversation.turn
    assert before is not None
    over = (closed("cancelled"), finished())
    late = given(*OPEN_TURN, *over).when(lambda c: c.report_usage(before, [CALL], now=NOW)).then(UsageReported)
    event = late.and_owes().newest(UsageReported)
    assert (event.turn, event.purpose, event.actor) == (1, "turn", SYSTEM)
    assert event.correlation_id == before.event_id

    # while the next turn runs, it is not that turn's
    limits = started(settings={"max_tokens_per_turn": 100})
    again = (limits, asked(), claimed(), closed("cancelled"), asked("m2"), claimed())
    given(*again, reported(CALL, turn=1)).and_owes(CallModel())
    given(*again, reported(CALL, turn=2)).and_owes(TOKENS)


def test_c7_the_tries_of_other_models_are_recorded_with_the_reply() -> None:
    other = Usage(model="first", calls=3, input_tokens=30)
    answered = replace(reply(), usage=CALL, usage_of_others=[other])
    scenario = given(*OPEN_TURN).when(lambda c: c.record_reply(1, 1, answered, now=NOW))
    scenario.then(AssistantMsg, UsageReported, TurnEnded)
    assert scenario.newest(UsageReported).usage == [other]
    assert scenario.newest(AssistantMsg).usage == CALL


def test_read_models_know_of_an_open_turn_what_decides_whether_it_goes_on() -> None:
    """Folded event by event, each time from what was kept of the state."""
    first = (started(settings={"max_cost_usd": 0.5}), asked(), claimed(), *STEP, closed(), asked("m2"))
    kept = None
    owed = []
    for event in history(*first, claimed(spent_usd=0.25), *STEP):
        conversation = load_state(CONVERSATION, kept)
        conversation.evolve(event)
        owed.append(owed_at_any_time(conversation))
        kept = keep_state(conversation)
        assert conversation.turn or not (kept and "spent_usd" in kept), "the next turn will say it"
    spent = over("0.50 of 0.50 USD of this conversation")
    assert owed[-4:] == [(CallModel(),), (spent,), (RunTools(("c1",)),), (spent,)]
