"""What summaries cost that came to nothing: recorded beside them, and in nobody's way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from commands.agent.compaction import compact, compact_once
from commands.agent.model import ModelError
from commands.summaries import summary_events, summary_state
from domain.summarising import Refused
from domain.summary_events import SummaryFailed, SummaryRecorded
from domain.usage import Usage
from tests.support.agents import Office, says

if TYPE_CHECKING:
    from uuid import UUID

    from commands.agent.model import ModelReply, ModelRequest

SPENT = Usage(model="scripted", input_tokens=70)


async def long_conversation(office: Office) -> UUID:
    one = await office.start(compaction={"budget_tokens": 600, "keep_recent_tokens": 300})
    for n in range(5):
        office.model.script.append(says("Yes."))
        await office.say(one, f"{n} " + "word " * 160)
        await (await office.runner(one)).run()
    return one


@pytest.mark.parametrize(
    ("step", "error"),
    [(says(""), Refused), (ModelError("bad_request", "no", retryable=False, usage=SPENT), ModelError)],
)
async def test_c7_a_summary_that_is_refused_or_fails_is_paid_for(step: object, error: type[Exception]) -> None:
    office = Office()
    one = await long_conversation(office)
    office.model.script.append(step)
    with pytest.raises(error):
        await compact(one, office.surroundings)

    (failed,) = await summary_events(office.store, one)
    assert isinstance(failed, SummaryFailed)
    assert [usage.model for usage in failed.usage] == ["scripted"]
    assert (await summary_state(office.store, one)).latest is None


async def test_c7_a_summary_that_comes_second_is_paid_for() -> None:
    office = Office()
    one = await long_conversation(office)

    async def slower(request: ModelRequest) -> ModelReply:
        office.model.script.append(says("## Goal\nThe first one."))
        await compact_once(one, office.surroundings)
        office.model.script.append(says("## Goal\nOne more."))  # if what the first one left is too long
        return says("## Goal\nThe second one.")

    office.model.script.append(slower)
    await compact_once(one, office.surroundings)

    first, second, *_ = events = await summary_events(office.store, one)
    assert isinstance(first, SummaryRecorded)
    assert "The first one." in first.content
    assert isinstance(second, SummaryFailed)
    assert len(events) == len(office.model.requests) - 5, "each call is told once"


async def test_c7_nothing_is_recorded_where_nothing_was_reported() -> None:
    office = Office()
    one = await long_conversation(office)
    office.model.script.append(ModelError("auth", "no", retryable=False))
    with pytest.raises(ModelError):
        await compact(one, office.surroundings)
    assert await summary_events(office.store, one) == []
