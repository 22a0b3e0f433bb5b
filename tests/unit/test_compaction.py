"""Compaction over a log in memory: what is summarised when, and what the model sees then."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from commands.agent.compaction import compact
from commands.compact import request_summary, revoke_summary
from commands.summaries import revived, summary_events, summary_state
from domain import events
from domain.errors import SummaryNotFound
from domain.summaries import in_force
from domain.summarising import Refused
from domain.tools import ToolContext  # noqa: TC001 - a tool's annotations are read when it runs
from domain.wire import stream_of, summary_stream_of
from infra.memory_event_store import MemoryEventStore
from tests.support.agents import Office, says
from tests.support.compacting import (
    SUMMARY,
    TIGHT,
    TURN_TOKENS,
    WORDS,
    Summarising,
    context,
    goes_on,
    newest_end,
    of,
    summaries,
    talked,
)

if TYPE_CHECKING:
    from commands.agent.model import ModelReply, ModelRequest
    from domain.event_store import StoredEvent


@pytest.fixture
def office() -> Office:
    return Office(model=Summarising())


async def test_c1_compaction_appends_nothing_to_the_conversation_and_changes_none_of_its_bytes(office: Office) -> None:
    one = await talked(office, 6)
    before = await office.store.read(stream_of(one))
    await compact(one, office.surroundings)
    assert await office.store.read(stream_of(one)) == before
    assert len(await summaries(office, one)) == 1


async def test_c2_a_summary_ends_with_a_turn_and_says_what_it_stands_for(office: Office) -> None:
    one = await talked(office, 6)
    log = await office.log(one)
    assert [event.compact for event in log if isinstance(event, events.TurnEnded)] == [None] * 3 + [True] * 3
    await compact(one, office.surroundings)
    [summary] = await summaries(office, one)
    assert isinstance(log[summary.to_seq - 1], events.TurnEnded)
    assert (summary.from_seq, summary.based_on, summary.version, summary.model) == (1, None, 1, "scripted")
    assert summary.content == SUMMARY
    assert summary.tokens_before == pytest.approx(6 * TURN_TOKENS, rel=0.1)
    assert summary.context_seq == len(log)
    kept = [event for event in log[summary.to_seq :] if isinstance(event, events.TurnStarted)]
    assert [event.turn for event in kept] == [5, 6], "the newest 500 tokens stay as they are"


async def test_c2_loading_is_the_newest_summary_and_the_events_after_it_by_one_read_of_each_stream() -> None:
    reads: list[tuple[str, int]] = []

    class Counting(MemoryEventStore):
        async def read(self, stream: str, **bounds: Any) -> list[StoredEvent]:
            found = await super().read(stream, **bounds)
            reads.append((stream, len(found)))
            return found

    office = Office(model=Summarising(), store=Counting())
    one = await talked(office, 2)
    state, seen = await revived(office.store, one)
    assert (state.latest, [event.seq for event in seen]) == (None, list(range(1, len(await office.log(one)) + 1)))

    one = await talked(office, 6)
    await compact(one, office.surroundings)
    reads.clear()
    state, seen = await revived(office.store, one)
    assert state.to_seq == (await summaries(office, one))[-1].to_seq
    assert [event.seq for event in seen] == list(range(state.to_seq + 1, len(await office.log(one)) + 1))
    assert reads[:2] == [(summary_stream_of(one), 1), (stream_of(one), len(seen))]


async def test_c3_the_next_turn_sees_the_summary_and_what_came_after_it(office: Office) -> None:
    one = await talked(office, 6)
    await compact(one, office.surroundings)
    messages = await goes_on(office, one)
    assert SUMMARY in messages[0]["content"]
    assert [message["content"][:2] for message in messages[1:]] == ["4:", "Ye", "5:", "Ye", "An"]
    started = [event for event in await office.log(one) if isinstance(event, events.TurnStarted)]
    assert started[-1].summary_to_seq == (await summaries(office, one))[-1].to_seq


async def test_each_summary_updates_the_one_before(office: Office) -> None:
    one = await talked(office, 6)
    await compact(one, office.surroundings)
    for n in range(4):
        await goes_on(office, one, f"again {n}: {WORDS}")
    await compact(one, office.surroundings)
    first, second = await summaries(office, one)
    assert (second.based_on, second.from_seq) == (first.to_seq, first.to_seq + 1)
    [_, asked] = of(office).asked_to_summarise[-1].messages
    assert SUMMARY in asked["content"]
    assert "4: word" in asked["content"]
    assert "3: word" not in asked["content"]


async def test_within_the_budget_no_model_is_asked(office: Office) -> None:
    one = await talked(office, 3)
    await compact(one, office.surroundings)
    assert not of(office).asked_to_summarise


async def test_a_request_compacts_what_is_within_the_budget_and_is_answered_once(office: Office) -> None:
    one = await talked(office, 3)
    await request_summary(office.conversations, one, context())
    assert (await summary_state(office.store, one)).requested
    await compact(one, office.surroundings)
    await compact(one, office.surroundings)
    assert len(of(office).asked_to_summarise) == 1
    assert not (await summary_state(office.store, one)).requested


async def test_a_summary_larger_than_its_source_or_empty_is_refused(office: Office) -> None:
    one = await talked(office, 6)
    for said in (says(WORDS * 10), says("  ")):

        async def summary(reply: ModelReply = said) -> ModelReply:
            return reply

        of(office).summary = summary
        with pytest.raises(Refused):
            await compact(one, office.surroundings)
    assert await summaries(office, one) == []
    assert len(await goes_on(office, one)) == 13


async def test_window_drops_older_turns_without_a_model_and_none_keeps_them(office: Office) -> None:
    one = await talked(office, 6, strategy="window")
    await compact(one, office.surroundings)
    [summary] = await summaries(office, one)
    assert (summary.strategy, summary.model, summary.usage) == ("window", None, None)
    assert len(messages := await goes_on(office, one)) == 6
    assert f"up to event {summary.to_seq} were dropped" in messages[0]["content"]

    other = await talked(office, 6, strategy="none")
    assert not any(event.compact for event in await office.log(other) if isinstance(event, events.TurnEnded))
    await compact(other, office.surroundings)
    assert len(await goes_on(office, other)) == 13
    assert not of(office).asked_to_summarise


async def test_c4_a_revoked_summary_is_as_if_it_had_never_been_and_so_are_those_built_on_it(office: Office) -> None:
    one = await talked(office, 6)
    await compact(one, office.surroundings)
    for n in range(4):
        await goes_on(office, one, f"again {n}: {WORDS}")
    await compact(one, office.surroundings)
    first, second = await summaries(office, one)
    receipt = await revoke_summary(office.conversations, one, second.to_seq, context())
    assert receipt.answer == {"revoked": [second.to_seq]}
    assert (await summary_state(office.store, one)).latest == first
    receipt = await revoke_summary(office.conversations, one, first.to_seq, context())
    assert receipt.answer == {"revoked": [first.to_seq]}
    with pytest.raises(SummaryNotFound):
        await revoke_summary(office.conversations, one, first.to_seq, context())
    assert (await goes_on(office, one))[0]["content"].startswith("0: word")
    assert await summaries(office, one) == [first, second], "the records stay"

    await compact(one, office.surroundings)
    assert in_force(await summary_events(office.store, one))[0].from_seq == 1


async def test_c4_revoking_the_first_revokes_what_was_built_on_it(office: Office) -> None:
    one = await talked(office, 6)
    await compact(one, office.surroundings)
    for n in range(4):
        await goes_on(office, one, f"again {n}: {WORDS}")
    await compact(one, office.surroundings)
    first, second = await summaries(office, one)
    receipt = await revoke_summary(office.conversations, one, first.to_seq, context())
    assert receipt.answer == {"revoked": [first.to_seq, second.to_seq]}
    assert (await summary_state(office.store, one)).latest is None


async def test_a_message_that_waits_where_the_cut_is_comes_after_it_once(office: Office) -> None:
    one = await office.start(compaction=TIGHT)

    async def another_message_comes(request: ModelRequest, n: int) -> ModelReply:
        if n < 6:
            await office.say(one, f"{n + 1}: {WORDS}")
        return says("Yes.")

    office.model.script += [partial(another_message_comes, n=n) for n in range(7)]
    async with office.working():
        await office.say(one, f"0: {WORDS}")
        await office.turns_end(one, 7)
    await compact(one, office.surroundings)
    [summary] = await summaries(office, one)
    assert summary.carried
    texts = [message["content"][:2] for message in (await goes_on(office, one))[1:]]
    assert texts == ["4:", "Ye", "5:", "Ye", "6:", "Ye", "An"]
    assert "4: word" not in str(of(office).asked_to_summarise[0].messages)
    assert "3: word" in str(of(office).asked_to_summarise[0].messages)


async def test_files_and_resources_come_from_what_tools_recorded(office: Office) -> None:
    office = Office(model=Summarising(), tools=(write_note,))
    one = await talked(office, 1)
    for n in range(6):
        office.model.script += [says("", ("write_note", {"name": f"note{n % 2}"})), says("Written.")]
        await goes_on(office, one, f"write: {WORDS}")
    await compact(one, office.surroundings)
    summary = (await summaries(office, one))[-1]
    assert summary.content.startswith(SUMMARY)
    assert summary.content.endswith("## Files and resources\n- note1.md (write)\n- note0.md (write)")
    await request_summary(office.conversations, one, context())
    await compact(one, office.surroundings)
    previous, _, _ = of(office).asked_to_summarise[-1].messages[1]["content"].partition("<conversation>")
    assert SUMMARY in previous
    assert "note0.md" not in previous, "the model is not asked to copy what is recorded"
    assert (await summaries(office, one))[-1].content.count("## Files and resources") == 1


async def write_note(ctx: ToolContext, name: str) -> str:
    """Write a note."""
    ctx.touched(f"{name}.md", "write")
    return "ok"


async def test_what_a_turn_left_too_large_is_summarised_after_a_smaller_one_too(office: Office) -> None:
    one = await talked(office, 4)
    assert (await newest_end(office, one)).compact
    await goes_on(office, one, "Hm?")
    await compact(one, office.surroundings)
    assert len(await summaries(office, one)) == 1
