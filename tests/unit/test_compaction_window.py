"""Requests that a model refuses for their length: what is made room in, how often, and what is left then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from commands.agent.compaction import compact, compact_once
from commands.agent.model import ModelError
from domain import events
from domain.tokens import tokens_of
from tests.support.agents import Office, says
from tests.support.compacting import (
    SUMMARY,
    Summarising,
    goes_on,
    newest_end,
    of,
    summaries,
    talked,
)

if TYPE_CHECKING:
    from commands.agent.model import ModelReply, ModelRequest

TOO_LONG = ModelError("context_window", "too long", retryable=False)


@pytest.fixture
def office() -> Office:
    return Office(model=Summarising())


async def test_a_request_that_is_refused_for_its_length_is_compacted_once_and_the_turn_goes_on(office: Office) -> None:
    one = await talked(office, 6, budget_tokens=100_000)
    office.model.script += [TOO_LONG, says("At last.")]
    messages = await goes_on(office, one)
    log = await office.log(one)
    [resumed] = [event for event in log if isinstance(event, events.TurnResumed)]
    [summary] = await summaries(office, one)
    assert resumed.summary_to_seq == summary.to_seq
    assert SUMMARY in messages[0]["content"]
    assert messages[-1]["content"] == "And now?"
    assert isinstance(log[-1], events.TurnEnded)
    assert log[-1].outcome == "completed"


async def test_a_single_turn_that_is_TOO_LONG_loses_its_oldest_results_and_then_fails(office: Office) -> None:
    office = Office(model=Summarising(), tools=(read_much,))
    one = await office.start(compaction={"budget_tokens": 100_000})
    office.model.script += [says("", ("read_much", {})), says("", ("read_much", {})), TOO_LONG, says("Enough.")]
    messages = await goes_on(office, one)
    results = [message["content"] for message in messages if message["role"] == "tool"]
    assert results[0].startswith("[The result of this call was left out")
    assert results[1] == "much " * 500
    assert isinstance(ended := (await office.log(one))[-1], events.TurnEnded)
    assert ended.outcome == "completed"

    office.model.script += [says("", ("read_much", {})), says("", ("read_much", {})), *[TOO_LONG] * 4]
    of(office).summary = None
    messages = await goes_on(office, one)
    assert all("left out" in message["content"] for message in messages if message["role"] == "tool")
    ended = (await office.log(one))[-1]
    assert isinstance(ended, events.TurnEnded)
    assert (ended.outcome, ended.reason, ended.compact) == ("failed", "context_window", True)
    office.model.script.clear()
    assert (await goes_on(office, one))[-1]["content"] == "And now?", "the conversation stays usable"


def read_much() -> str:
    """Read much."""
    return "much " * 500


async def test_a_summary_that_came_meanwhile_is_room_enough_where_no_more_can_be_summarised(office: Office) -> None:
    one = await talked(office, 6)

    async def summarised_meanwhile(request: ModelRequest) -> ModelReply:
        while await compact_once(one, office.surroundings, refused_tokens=1) is not None:
            pass
        raise TOO_LONG

    office.model.script += [summarised_meanwhile, says("At last.")]
    messages = await goes_on(office, one)
    made = await summaries(office, one)
    assert SUMMARY in messages[0]["content"]
    assert len(messages) == 2
    [resumed] = [event for event in await office.log(one) if isinstance(event, events.TurnResumed)]
    assert resumed.summary_to_seq == made[-1].to_seq
    assert (await newest_end(office, one)).outcome == "completed"


async def test_a_turn_makes_room_once_then_leaves_results_out_then_fails(office: Office) -> None:
    office = Office(model=Summarising(), tools=(read_much,))
    one = await talked(office, 6, budget_tokens=100_000)
    office.model.script += [says("", ("read_much", {})), *[TOO_LONG] * 3]
    messages = await goes_on(office, one)
    ended = await newest_end(office, one)
    assert (ended.outcome, ended.reason, ended.compact) == ("failed", "context_window", True)
    assert len(await summaries(office, one)) == len(of(office).asked_to_summarise) == 1
    assert SUMMARY in messages[0]["content"]
    assert "left out" in messages[-1]["content"]
    assert len(office.model.requests) == 6 + 4
    assert (await goes_on(office, one))[-1]["content"] == "And now?", "the conversation stays usable"


async def test_without_compaction_a_request_that_is_TOO_LONG_fails_the_turn(office: Office) -> None:
    one = await talked(office, 2, strategy="none")
    office.model.script.append(TOO_LONG)
    await goes_on(office, one)
    ended = await newest_end(office, one)
    assert (ended.outcome, ended.reason, ended.compact) == ("failed", "context_window", None)
    assert not of(office).asked_to_summarise


async def test_a_summariser_with_a_smaller_window_is_asked_with_less(office: Office) -> None:
    one = await talked(office, 6)
    asked: list[int] = []

    async def small() -> ModelReply:
        asked.append(tokens_of(of(office).asked_to_summarise[-1].messages[1:]))
        if asked[-1] > 600:
            raise TOO_LONG
        return says(SUMMARY)

    of(office).summary = small
    await compact(one, office.surroundings)
    assert asked[0] > 600 >= asked[1]
    assert SUMMARY in (await goes_on(office, one))[0]["content"]


async def test_a_summariser_that_refuses_anything_for_its_length_fails_in_the_end(office: Office) -> None:
    one = await talked(office, 6)

    async def refusing() -> ModelReply:
        raise TOO_LONG

    of(office).summary = refusing
    with pytest.raises(ModelError):
        await compact(one, office.surroundings)
    assert len(of(office).asked_to_summarise) < 10
