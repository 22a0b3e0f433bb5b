"""Whatever happens to conversations, every read model is a function of the log, and says what the aggregate says."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from domain.conversation import Conversation
from domain.owes import AwaitInput, owes
from domain.wire import decode
from projections.agenda import AGENDA
from projections.catalog import PROJECTIONS
from projections.conversations import CONVERSATIONS
from projections.display_messages import DISPLAY_MESSAGES
from projections.tool_calls import TOOL_CALLS
from tests.support.given import NOW, asked, called, claimed, closed, copied_whole, got, history, said, started, stored
from tests.support.projecting import fold_whole, given_log, interleaved
from tests.support.random_log import random_log

if TYPE_CHECKING:
    from domain.event_store import StoredEvent
    from projections.projection import Projection
    from tests.support.given import Fact


@pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda projection: projection.name)
@pytest.mark.parametrize("seed", range(10))
def test_r4_any_log_folds_to_the_same_rows_however_it_is_cut(projection: Projection, seed: int) -> None:
    chance = random.Random(seed)
    log = interleaved([random_log(chance) for _ in range(4)], chance)
    given_log(log).project(projection, cuts=3)


@pytest.mark.parametrize("seeds", [range(n, n + 40) for n in range(0, 200, 40)])
def test_r2_read_models_agree_with_the_aggregate(seeds: range) -> None:
    for seed in seeds:
        log = random_log(random.Random(seed))
        agrees(log)
        agrees(log[: len(log) * 2 // 3])


def agrees(log: list[StoredEvent]) -> None:
    conversation = Conversation.at(decode(log[0]).originator_id).fold(decode(event) for event in log)
    [row] = fold_whole(CONVERSATIONS, log).values()
    [due] = fold_whole(AGENDA, log).values()
    calls = {call["tool_call_id"]: call for call in fold_whole(TOOL_CALLS, log).values()}
    shown = fold_whole(DISPLAY_MESSAGES, log).values()

    pending = {key for key, call in calls.items() if call["status"] == "pending"}
    executing = {key for key, call in calls.items() if call["status"] == "executing"}
    assert pending == {key for key, call in conversation.calls.items() if call.question}
    assert executing == {key for key, call in conversation.calls.items() if not call.question}
    waiting = {} if conversation.ended else conversation.waiting
    with_parts = {m["message_id"] for m in shown if m["message_id"]}
    assert {m["message_id"] for m in shown if m["status"] == "pending"} == waiting.keys() & with_parts

    owed = owes(conversation, NOW)
    only_people = bool(owed) and all(isinstance(one, AwaitInput) for one in owed)
    assert row["last_seq"] == due["seq"] == conversation.version
    assert row["status"] == status_of(conversation, only_people=only_people)
    assert due["at_once"] == (bool(owed) and not only_people)
    assert row["fsm_state"]["state"] in ("idle", "awaiting_input")
    if only_people:
        assert row["fsm_state"]["state"] == "awaiting_input"
        assert row["fsm_state"]["pending"].keys() == conversation.calls.keys()
        assert due["due_at"] == min(
            (one.until for one in owed if isinstance(one, AwaitInput) and one.until), default=None
        )
    if only_people or not owed:
        assert row["fsm_state"]["last_seq"] == conversation.version


def status_of(conversation: Conversation, *, only_people: bool) -> str:
    if conversation.ended:
        return "ended"
    if only_people:
        return "suspended"
    return "active" if conversation.busy else "idle"


@pytest.mark.parametrize("projection", [AGENDA, CONVERSATIONS], ids=lambda projection: projection.name)
def test_r4_a_fork_of_a_fork_folds_to_the_same_rows_however_it_is_cut(projection: Projection) -> None:
    first = started(forked_from=UUID(int=8), forked_seq=9)
    copies = [replace(fact, fields=fact.fields | {"copied_from": UUID(int=7)}) for fact in (*turn(1), copied_whole())]
    log = [stored(event) for event in history(first, *copies, *copies[:-1], copied_whole(), *turn(2), *turn(3)[:4])]
    for length in range(1, len(log) + 1):
        given_log(log[:length]).project(projection, cuts=3)


@pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda projection: projection.name)
def test_r3_what_a_batch_loads_does_not_grow_with_the_conversation(projection: Projection) -> None:
    log = [stored(event) for event in history(started(), *(fact for n in range(100) for fact in turn(n)))]
    assert len(log) > 600
    still_open = [row for row in fold_whole(projection, log).values() if projection.is_open(row)]
    assert len(still_open) <= 1


def turn(n: int) -> tuple[Fact, ...]:
    return asked(f"m{n}"), claimed(), said(""), called(f"c{n}"), got(f"c{n}"), said(), closed()


def test_l11_the_logs_of_these_tests_hold_text_that_no_store_takes_as_it_is() -> None:
    log = [event for seed in range(20) for event in random_log(random.Random(seed))]
    assert any("\ufffd" in event.data for event in log)
    assert {event.type for event in log} >= {
        "resolution",
        "tool_step",
        "turn_resumed",
        "conversation_ended",
        "suspension",
    }
