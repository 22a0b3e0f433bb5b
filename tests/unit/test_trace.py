"""The causal chain of an event: who caused what, how long it took, and which path was the slowest."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given as whatever
from hypothesis import settings, strategies

from api.debugging.trace import trace
from domain.wire import conversation_of
from projections.event import Event
from tests.support.given import ADA, APPROVAL, BEN, CONVERSATION, approve, message, ran, reply, wants
from tests.support.happening import Happening
from tests.support.random_log import random_log

if TYPE_CHECKING:
    from api.debugging.trace import Trace, TraceEvent


def traced(happening: Happening, seq: int) -> Trace:
    found = trace(happening.log, seq)
    assert found is not None
    return found


def two_calls(*, cancelled: bool = False) -> Happening:
    """One tool runs for 0.2 s, the other waits a minute for a person, and then runs for 0.3 s, if not cancelled."""
    first = reply(wants("c1"), wants("c2", gated=True, inquiry=APPROVAL))
    last = reply(step=2, context_seq=11)
    asked = (
        Happening()
        .then(1, lambda c, now: c.send_message(message("m1"), now=now, actor=ADA))
        .then(0.05, lambda c, now: c.start_turn(now=now))
        .then(2, lambda c, now: c.record_reply(1, 1, first, now=now))
        .then(0.2, lambda c, now: c.record_result(1, 1, ran("c1"), now=now))
    )
    if cancelled:
        return asked.then(59.8, lambda c, now: c.cancel(reason=None, now=now, actor=ADA))
    return (
        asked.then(59.8, lambda c, now: c.resolve(approve("c2"), now=now, actor=ADA))
        .then(0.3, lambda c, now: c.record_result(1, 1, ran("c2"), now=now))
        .then(1.5, lambda c, now: c.record_reply(1, 1, last, now=now))
    )


def by_seq(found: Trace) -> dict[int, TraceEvent]:
    return {event.seq: event for event in found.events}


def test_a_message_is_traced_down_to_the_end_of_its_turn_with_every_wait() -> None:
    found = traced(two_calls(), 2)

    assert [event.type for event in found.events] == [
        "user_msg", "turn_started", "assistant_msg", "tool_call", "tool_call", "suspension",
        "tool_result", "resolution", "tool_result", "assistant_msg", "turn_ended",
    ]  # fmt: skip
    assert found.ended
    assert [event.waits for event in found.events] == [
        {}, {"wake": 50}, {"model": 2000}, {}, {}, {},
        {"tool": 200}, {"human": 60_000}, {"tool": 300}, {"model": 1500}, {},
    ]  # fmt: skip
    assert found.times == {"wake": 50, "model": 3500, "human": 60_000, "tool": 300}
    assert found.total_ms == sum(found.times.values())


def test_the_slowest_path_goes_through_what_the_end_waited_for() -> None:
    found = traced(two_calls(), 2)

    assert [event.seq for event in found.events if event.slowest] == [2, 3, 4, 6, 7, 9, 10, 11, 12]


def test_a_result_is_an_effect_of_its_call_and_a_cause_of_the_reply_that_read_it() -> None:
    found = by_seq(traced(two_calls(), 8))

    assert {seq: event.role for seq, event in found.items()} == {
        2: "cause", 3: "cause", 4: "cause", 5: "cause", 8: "event", 11: "effect", 12: "effect",
        6: "sibling", 7: "sibling", 9: "sibling", 10: "sibling",
    }  # fmt: skip
    assert found[11].causes == [8, 10], "both results, though only the later one is named as the cause"


@pytest.mark.parametrize("cancelled", [False, True], ids=["approved", "cancelled"])
def test_a_turn_waited_for_a_person_whichever_of_its_events_is_asked_for(cancelled: bool) -> None:
    happening = two_calls(cancelled=cancelled)
    whole = traced(happening, 2)

    for event in happening.log[1:]:
        found = traced(happening, event.seq)
        assert (found.times, found.total_ms) == (whole.times, whole.total_ms)
        assert [one.seq for one in found.events if one.slowest] == [one.seq for one in whole.events if one.slowest]
    assert whole.times["human"] == 60_000
    assert "other" not in whole.times


def test_the_tree_shows_the_replies_of_a_turn_side_by_side_under_it() -> None:
    found = by_seq(traced(two_calls(), 2))

    assert {seq: event.parent for seq, event in found.items()} == {
        2: None, 3: 2, 4: 3, 5: 4, 6: 4, 7: 6, 8: 5, 9: 7, 10: 9, 11: 3, 12: 3,
    }  # fmt: skip


def test_all_messages_that_a_turn_answers_are_its_causes() -> None:
    happening = (
        Happening()
        .then(1, lambda c, now: c.send_message(message("m1"), now=now, actor=ADA))
        .then(1, lambda c, now: c.send_message(message("m2"), now=now, actor=BEN))
        .then(0.5, lambda c, now: c.start_turn(now=now))
    )

    found = by_seq(traced(happening, 4))
    assert found[4].causes == [2, 3]
    assert found[4].waits == {"wake": 500}, "since the newest message"
    of_the_first = by_seq(traced(happening, 2))
    assert {seq: event.role for seq, event in of_the_first.items()} == {2: "event", 3: "sibling", 4: "effect"}


def test_a_steering_message_is_a_cause_of_the_reply_that_saw_it() -> None:
    happening = (
        Happening()
        .then(1, lambda c, now: c.send_message(message("m1"), now=now, actor=ADA))
        .then(0, lambda c, now: c.start_turn(now=now))
        .then(1, lambda c, now: c.record_reply(1, 1, reply(wants("c1")), now=now))
        .then(1, lambda c, now: c.send_message(message("m2", when_busy="steer"), now=now, actor=ADA))
        .then(1, lambda c, now: c.record_result(1, 1, ran("c1"), now=now))
        .then(1, lambda c, now: c.record_reply(1, 1, reply(step=2, context_seq=7), now=now))
    )

    assert by_seq(traced(happening, 6))[8].causes == [6, 7]


def test_a_message_that_waited_behind_a_turn_says_so() -> None:
    happening = (
        Happening()
        .then(1, lambda c, now: c.send_message(message("m1"), now=now, actor=ADA))
        .then(0, lambda c, now: c.start_turn(now=now))
        .then(1, lambda c, now: c.send_message(message("m2"), now=now, actor=ADA))
        .then(4, lambda c, now: c.record_reply(1, 1, reply(), now=now))
        .then(0.01, lambda c, now: c.start_turn(now=now))
    )

    assert by_seq(traced(happening, 4))[7].waits == {"queue": 4000, "wake": 10}


def test_an_event_is_found_by_its_id_and_one_that_is_not_there_is_not() -> None:
    happening = two_calls()
    event = happening.log[7]

    assert trace(happening.log, event.event_id) == traced(happening, 8)
    assert trace(happening.log, 99) is None
    assert trace(happening.log, CONVERSATION) is None


@settings(max_examples=60)
@whatever(strategies.integers(0, 2**32))
def test_in_any_conversation_a_turn_leads_to_all_that_happens_in_it(seed: int) -> None:
    stored_log = random_log(random.Random(seed))
    conversation_id = conversation_of(stored_log[0].stream)
    assert conversation_id is not None
    log = [Event(one, conversation_id) for one in stored_log]

    for event in log:
        found = trace(log, event.event_id)
        assert found is not None
        shown = by_seq(found)
        assert [one.seq for one in found.events if one.role == "event"] == [event.seq]
        assert sum(found.times.values()) == pytest.approx(found.total_ms, abs=0.1)
        assert all(one.parent is None or (one.parent in shown and one.parent < one.seq) for one in found.events)
        if event.type == "turn_started":
            of_the_turn = {one.seq for one in log if one.metadata["correlation_id"] == str(event.event_id)}
            assert of_the_turn <= shown.keys()
