"""What goes on beside a compaction: turns, requests, revocations, other compactions, the end of all."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from commands.agent.compaction import compact
from commands.compact import request_summary, revoke_summary
from commands.summaries import summary_events, summary_state
from domain.errors import ConversationNotFound
from domain.summaries import in_force
from domain.wire import decode, stream_of, summary_stream_of
from tests.support.agents import Office, says
from tests.support.compacting import (
    SUMMARY,
    WORDS,
    Summarising,
    context,
    goes_on,
    of,
    summaries,
    talked,
)

if TYPE_CHECKING:
    from commands.agent.model import ModelReply, ModelRequest


@pytest.fixture
def office() -> Office:
    return Office(model=Summarising())


async def test_c3_a_running_turn_keeps_the_view_that_it_began_with(office: Office) -> None:
    office = Office(model=Summarising(), tools=(lookup,))
    one = await talked(office, 6)

    async def meanwhile(request: ModelRequest) -> ModelReply:
        await compact(one, office.surroundings)
        return says("", ("lookup", {}))

    office.model.script += [says("", ("lookup", {})), meanwhile, says("Done.")]
    await goes_on(office, one)
    first, second, third = (json.dumps(list(request.messages)) for request in office.model.requests[-3:])
    assert len(await summaries(office, one)) == 1
    assert second.startswith(first[:-1])
    assert third.startswith(second[:-1])
    assert SUMMARY in (await goes_on(office, one))[0]["content"]


def lookup() -> str:
    """Look it up."""
    return "found"


async def test_a_revocation_that_races_a_compaction_wins_and_it_is_judged_anew(office: Office) -> None:
    one = await talked(office, 6)
    await compact(one, office.surroundings)
    for n in range(4):
        await goes_on(office, one, f"again {n}: {WORDS}")
    [first] = await summaries(office, one)

    async def revoked_meanwhile() -> ModelReply:
        of(office).summary = None
        await revoke_summary(office.conversations, one, first.to_seq, context())
        return says("## Goal\nBuilt on what is revoked.")

    of(office).summary = revoked_meanwhile
    await compact(one, office.surroundings)
    live = in_force(await summary_events(office.store, one))
    assert "Built on what is revoked" not in str(live)
    assert (live[0].from_seq, live[0].based_on) == (1, None)


async def test_of_two_compactions_at_once_one_is_recorded(office: Office) -> None:
    one = await talked(office, 6)

    async def another_meanwhile() -> ModelReply:
        of(office).summary = None
        await compact(one, office.surroundings)
        return says("## Goal\nToo late.")

    of(office).summary = another_meanwhile
    await compact(one, office.surroundings)
    assert [summary.content for summary in await summaries(office, one)] == [SUMMARY]


async def test_a_request_meanwhile_costs_no_paid_summary(office: Office) -> None:
    one = await talked(office, 6)

    async def requested_meanwhile() -> ModelReply:
        await request_summary(office.conversations, one, context())
        return says(SUMMARY)

    of(office).summary = requested_meanwhile
    await compact(one, office.surroundings)
    assert len(of(office).asked_to_summarise) == 1
    state = await summary_state(office.store, one)
    assert (state.seq, state.requested) == (2, False)


async def test_an_erased_conversation_is_not_summarised(office: Office) -> None:
    one = await talked(office, 6)

    async def erased_meanwhile() -> ModelReply:
        await office.store.delete(summary_stream_of(one))
        await office.store.delete(stream_of(one))
        return says(SUMMARY)

    of(office).summary = erased_meanwhile
    with pytest.raises(ConversationNotFound):
        await compact(one, office.surroundings)
    assert [decode(stored) for stored in await office.store.read(summary_stream_of(one))] == []


async def test_c4_what_is_summarised_anew_after_a_revocation_is_what_the_next_turn_sees(office: Office) -> None:
    one = await talked(office, 6)
    await compact(one, office.surroundings)
    assert SUMMARY in (await goes_on(office, one))[0]["content"]
    [first] = await summaries(office, one)
    await revoke_summary(office.conversations, one, first.to_seq, context())

    async def a_better_one() -> ModelReply:
        return says("## Goal\nTo talk better.")

    of(office).summary = a_better_one
    await compact(one, office.surroundings)
    [_, second] = await summaries(office, one)
    assert second.to_seq == first.to_seq
    assert "To talk better." in (await goes_on(office, one))[0]["content"]


async def test_c4_a_turn_keeps_a_summary_that_is_revoked_meanwhile_and_the_next_one_does_not(office: Office) -> None:
    office = Office(model=Summarising(), tools=(lookup,))
    one = await talked(office, 6)
    await compact(one, office.surroundings)
    [summary] = await summaries(office, one)

    async def revoked_meanwhile(request: ModelRequest) -> ModelReply:
        await revoke_summary(office.conversations, one, summary.to_seq, context())
        return says("", ("lookup", {}))

    async def never(request: ModelRequest) -> ModelReply:
        await asyncio.Event().wait()
        raise AssertionError

    office.model.script += [revoked_meanwhile, never]
    await office.say(one, "And now?")
    dies = asyncio.create_task((await office.runner(one)).run())
    await office.model.was_asked(8)
    dies.cancel()
    await asyncio.wait([dies])
    elsewhere = Office(model=Summarising(), tools=(lookup,), store=office.store)
    await (await elsewhere.runner(one, takeover=True)).run()
    [asked] = elsewhere.model.requests
    assert [message["role"] for message in asked.messages[-3:]] == ["user", "assistant", "tool"]
    assert SUMMARY in asked.messages[0]["content"]
    assert (await goes_on(elsewhere, one))[0]["content"].startswith("0: word")


async def test_a_summary_that_was_made_and_revoked_meanwhile_wins_over_a_slower_one(office: Office) -> None:
    one = await talked(office, 6)

    async def made_and_revoked_meanwhile() -> ModelReply:
        of(office).summary = None
        await compact(one, office.surroundings)
        [summary] = await summaries(office, one)
        await revoke_summary(office.conversations, one, summary.to_seq, context())
        return says("## Goal\nKnew of neither.")

    of(office).summary = made_and_revoked_meanwhile
    await compact(one, office.surroundings)
    assert "Knew of neither" not in str(await summaries(office, one))
