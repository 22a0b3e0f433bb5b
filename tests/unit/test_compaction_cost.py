"""What summaries cost that came to nothing: recorded beside them, and in nobody's way."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from commands.agent.compaction import compact, compact_once
from commands.agent.model import ModelError
from commands.agent.titles import name_conversation
from commands.summaries import summary_events, summary_state
from domain.events import UsageReported
from domain.summarising import Refused
from domain.summary_events import SummaryFailed, SummaryRecorded
from domain.usage import Usage
from tests.support.agents import Office, ScriptedModel, says

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
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


class Hangs(ScriptedModel):
    """A model that says what a request has used so far, and then nothing any more."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
        self.requests.append(request)
        async with self.asked:
            self.asked.notify_all()
        yield SPENT
        await asyncio.Event().wait()


async def test_c7_a_summary_that_is_broken_off_is_paid_for_as_far_as_it_was_told() -> None:
    office = Office()
    one = await long_conversation(office)
    hangs = Hangs()
    compacting = asyncio.create_task(compact(one, replace(office.surroundings, model=hangs)))
    await hangs.was_asked(1)
    await asyncio.sleep(0)  # for what it says after the request
    compacting.cancel()
    await asyncio.wait([compacting])
    assert compacting.cancelled()
    (failed,) = await summary_events(office.store, one)
    assert isinstance(failed, SummaryFailed)
    assert failed.usage == [SPENT]


async def test_c7_a_title_that_is_broken_off_is_paid_for_as_far_as_it_was_told() -> None:
    office = Office()
    one = await office.start("How do I get to Rome?")
    await (await office.runner(one)).run()
    hangs = Hangs()
    naming = asyncio.create_task(name_conversation(one, 1, replace(office.surroundings, model=hangs)))
    await hangs.was_asked(1)
    await asyncio.sleep(0)
    naming.cancel()
    await asyncio.wait([naming])
    assert naming.cancelled()
    reported = (await office.log(one))[-1]
    assert isinstance(reported, UsageReported)
    assert (reported.purpose, reported.usage) == ("title", [SPENT])
