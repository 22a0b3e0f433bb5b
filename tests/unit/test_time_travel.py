"""Any conversation can be looked at as it was after each of its events, however little of its log is read for that.

`REJOINDER_PROPERTY_RUNS` sets how many random conversations are tried (20).
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from api.debugging.history import History, LoadedLog
from api.debugging.moment import moment, owed_json, state_at
from api.debugging.patch import json_patch, patched
from api.debugging.seen import seen_by_model
from api.debugging.steps import Steps, difference
from commands.fork import Fork, fork
from commands.send_message import SendMessage
from domain.conversation import Conversation
from domain.errors import ConversationNotFound, InvalidInput
from domain.owes import owes
from domain.snapshots import dump
from domain.wire import conversation_of, decode, stream_of, summary_stream_of
from infra.memory_event_store import MemoryEventStore
from projections.display_messages import DISPLAY_MESSAGES
from projections.messages import item_of
from projections.testing import fold_whole
from tests.support.forking import folded, put
from tests.support.given import APPROVAL, NOW, message, reject, reply, stored, wants
from tests.support.random_log import PEOPLE, random_log, with_summaries
from tests.unit.test_commands import by, over

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from domain.event_envelope import ConversationEvent
    from domain.event_store import StoredEvent

MODEL = "demo"
DECISIONS: tuple[Callable[[Conversation, datetime], None], ...] = (
    lambda one, now: one.start(
        tenant="acme", owner="ada", title=None, settings={}, metadata={}, now=now, actor=PEOPLE[0]
    ),
    lambda one, now: one.send_message(message("m1"), now=now, actor=PEOPLE[0]),
    lambda one, now: one.start_turn(now=now),
    lambda one, now: one.record_reply(1, 1, reply(wants(gated=True, inquiry=APPROVAL)), now=now),
    lambda one, now: one.resolve(reject(), now=now, actor=PEOPLE[0]),
    lambda one, now: one.record_reply(1, 1, reply(step=2, context_seq=one.version), now=now),
)
"""What is appended at once, one after the other: 1, 1, 1, 3, 2 and 2 events."""
RUNS = int(os.environ.get("REJOINDER_PROPERTY_RUNS", "20"))


def history_of(log: list[StoredEvent]) -> History:
    """Read in pages that are shorter than the log, so that it is not read from its beginning."""
    conversation_id = conversation_of(log[0].stream)
    assert conversation_id is not None
    return History(LoadedLog(log), conversation_id, page=5)


def random_history(seed: int) -> tuple[list[StoredEvent], History]:
    log = random_log(random.Random(seed))
    return log, history_of(log)


def states(log: list[StoredEvent]) -> list[dict[str, Any]]:
    """The state after no event, after the first, after the second …, by the aggregate alone."""
    conversation = Conversation.at(history_of(log).conversation_id)
    return [dump(conversation), *(dump(conversation.fold([decode(event)])) for event in log)]


def read_back(value: Any) -> Any:
    """What a client reads of it."""
    return from_json(to_json(value))


@given(seed=st.integers(0, 2**32))
@settings(max_examples=RUNS)
async def test_d1_the_state_at_a_seq_is_the_fold_of_the_events_up_to_it(seed: int) -> None:
    log, history = random_history(seed)

    assert [await state_at(history, seq) for seq in range(len(log) + 1)] == states(log)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=RUNS)
async def test_d1_a_moment_shows_what_was_owed_and_what_people_saw_then(seed: int) -> None:
    log, history = random_history(seed)
    seq = random.Random(seed).randrange(1, len(log) + 1)
    decoded = [decode(event) for event in log[:seq]]
    conversation = Conversation.at(history.conversation_id).fold(decoded)

    then = await moment(history, seq, default_model=MODEL)

    assert (then.seq, then.last_seq, then.occurred_at, then.from_seq) == (seq, len(log), decoded[-1].timestamp, 1)
    assert then.state == dump(conversation)
    assert then.owes == owed_json(owes(conversation, decoded[-1].timestamp))
    rows = fold_whole(DISPLAY_MESSAGES, log[:seq]).values()
    assert read_back(then.messages) == read_back([item_of(row) for row in rows])


@given(seed=st.integers(0, 2**32))
@settings(max_examples=RUNS)
async def test_a_look_at_little_of_the_log_shows_the_end_of_what_a_look_at_all_shows(seed: int) -> None:
    log, history = random_history(seed)
    seq = random.Random(seed).randrange(1, len(log) + 1)

    whole = await moment(history, seq, default_model=MODEL)
    newest = await moment(history, seq, default_model=MODEL, at_least=1)

    assert (newest.state, newest.owes) == (whole.state, whole.owes)
    assert newest.messages == [row for row in whole.messages if row["seq"] >= newest.from_seq]
    assert newest.working_set.complete == (newest.from_seq == 1)
    assert newest.working_set.unanswered == whole.working_set.unanswered


@given(seed=st.integers(0, 2**32))
@settings(max_examples=RUNS)
async def test_d2_the_patches_of_all_steps_in_order_lead_to_the_state_at_the_end(seed: int) -> None:
    log, history = random_history(seed)
    state, expected = read_back(states(log)[0]), states(log)

    async for step in (await Steps.after(history, 0)).all():
        state = patched(state, read_back(step.patch))
        assert state == read_back(expected[step.seq])

    assert state["seq"] == len(log)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=RUNS)
async def test_d2_a_difference_leads_where_the_steps_between_lead_and_back(seed: int) -> None:
    log, history = random_history(seed)
    expected, chance = states(log), random.Random(seed)
    one, other = (chance.randrange(len(log) + 1) for _ in range(2))

    there = await difference(history, one, other)

    assert patched(expected[one], there.patch) == expected[other]
    assert (there.patch == []) == (one == other)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=RUNS)
async def test_steps_are_the_same_wherever_one_begins(seed: int) -> None:
    log, history = random_history(seed)
    whole = [step async for step in (await Steps.after(history, 0)).all()]
    begin = random.Random(seed).randrange(len(log) + 1)

    assert [step.seq for step in whole] == list(range(1, len(log) + 1))
    assert [step async for step in (await Steps.after(history, begin)).all()] == whole[begin:]


@pytest.mark.parametrize("seed", range(6))
async def test_d1_a_fork_was_at_each_of_its_events_what_it_is_made_of(seed: int) -> None:
    chance, store = random.Random(seed), MemoryEventStore()
    log = random_log(chance, steps=30)
    await put(store, with_summaries(log, chance))
    source = conversation_of(log[0].stream)
    assert source is not None
    rests = [seq for seq in range(1, len(log)) if folded(log[:seq]).turn is None]
    conversations, _ = over(store)
    receipt = await fork(
        conversations, source, Fork(at_seq=chance.choice(rests), message=SendMessage(content="Again")), by()
    )
    made = await store.read(stream_of(receipt.conversation_id))
    history = History(store, receipt.conversation_id, page=5)

    assert [await state_at(history, seq) for seq in range(len(made) + 1)] == states(made)
    then = await moment(history, None, default_model=MODEL)
    whole = await history.whole()
    summaries = [decode(one) for one in await store.read(summary_stream_of(receipt.conversation_id))]
    assert then.working_set == seen_by_model(folded(made), whole, summaries, default_model=MODEL)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=RUNS)
async def test_d1_what_the_model_would_see_is_by_the_summaries_that_were_there(seed: int) -> None:
    both = with_summaries(log := random_log(random.Random(seed)), random.Random(seed))
    both = [replace(event, position=position) for position, event in enumerate(both, 1)]
    seq = random.Random(seed).randrange(1, len(log) + 1)
    upto = next(i for i, event in enumerate(both, 1) if event.stream == log[0].stream and event.seq == seq)

    then = await moment(history_of(both), seq, default_model=MODEL)
    at_the_time = await moment(history_of(both[:upto]), None, default_model=MODEL)

    assert then.working_set == at_the_time.working_set


async def test_amid_an_append_nobody_has_seen_the_log_end() -> None:
    conversation = Conversation.at(UUID(int=1))
    log: list[StoredEvent] = []
    lengths: list[int] = []
    for at, decide in enumerate(DECISIONS):
        decide(conversation, NOW + timedelta(microseconds=at))
        log += map(stored, cast("list[ConversationEvent]", conversation.collect_events()))
        lengths.append(len(log))
    history = History(LoadedLog(log), conversation.id, page=2)

    steps = [step async for step in (await Steps.after(history, 0)).all()]

    assert [step.seq for step in steps if not step.amid] == lengths
    assert [step.amid for step in steps] == [
        (await moment(history, seq, default_model=MODEL)).amid for seq in range(1, len(log) + 1)
    ]


async def test_before_the_first_event_there_is_nothing() -> None:
    _, history = random_history(1)

    then = await moment(history, 0, default_model=MODEL)

    assert (then.seq, then.occurred_at, then.owes, then.messages) == (0, None, [], [])
    assert then.state == dump(Conversation.at(history.conversation_id))
    assert then.working_set.messages == []


async def test_a_seq_that_the_log_has_not_reached_is_named() -> None:
    log, history = random_history(1)

    for look in (moment(history, len(log) + 1, default_model=MODEL), difference(history, 0, len(log) + 1)):
        with pytest.raises(InvalidInput, match=f"beyond the newest event, {len(log)}"):
            await look


async def test_a_conversation_without_events_is_not_found() -> None:
    history = History(LoadedLog([]), UUID(int=1))

    for look in (moment(history, None, default_model=MODEL), difference(history, 0, 0)):
        with pytest.raises(ConversationNotFound):
            await look


def test_a_patch_tells_true_from_one_and_does_not_look_into_what_is_the_same() -> None:
    before = {"n": 1, "same": {"deep": [1, 2, 3]}, "gone": None, "a/b~c": 1}
    after = {"n": True, "same": {"deep": [1, 2, 3]}, "new": 10**30, "a/b~c": 2}

    patch = json_patch(before, after)

    assert {(one["op"], one["path"]) for one in patch} == {
        ("replace", "/n"),
        ("remove", "/gone"),
        ("add", "/new"),
        ("replace", "/a~1b~0c"),
    }
    assert patched(before, patch) == after
    assert patched(before, patch)["n"] is True
