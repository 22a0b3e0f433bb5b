"""Compaction over a log in memory: what is summarised when, who wins a race, and what the model sees then."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from commands.agent.compaction import compact
from commands.agent.model import ModelError
from commands.compact import request_summary, revoke_summary
from commands.context import CommandContext
from commands.summaries import revived, summary_events, summary_state
from domain import events
from domain.errors import ConversationNotFound, SummaryNotFound
from domain.scope import LOCAL
from domain.summaries import in_force
from domain.summarising import INSTRUCTIONS, Refused
from domain.summary_events import SummaryRecorded
from domain.tools import ToolContext  # noqa: TC001 - a tool's annotations are read when it runs
from domain.wire import decode, stream_of, summary_stream_of
from infra.memory_event_store import MemoryEventStore
from tests.support.agents import Office, ScriptedModel, says

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from commands.agent.model import ModelReply, ModelRequest
    from domain.event_store import StoredEvent

TURN_TOKENS = 200
WORDS = "word " * (TURN_TOKENS * 4 // 5)
TIGHT = {"budget_tokens": 1_000, "keep_recent_tokens": 500}
SUMMARY = "## Goal\nTo talk.\n\n## Critical context\nThe code is 4711."


class Summarising(ScriptedModel):
    """Turns are answered by the script, else in a word; requests for summaries by `summary`, else by the one above."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_to_summarise: list[ModelRequest] = []
        self.summary: Callable[[], Awaitable[ModelReply]] | None = None

    async def stream(self, request: ModelRequest) -> Any:
        if request.messages[0]["content"] != INSTRUCTIONS:
            if not self.script:
                self.script.append(says("Yes."))
            async for item in super().stream(request):
                yield item
            return
        self.asked_to_summarise.append(request)
        yield await self.summary() if self.summary else says(SUMMARY)


@pytest.fixture
def office() -> Office:
    return Office(model=Summarising())


async def talked(office: Office, turns: int, *, words: str = WORDS, **compaction: Any) -> UUID:
    """Begin a conversation of so many turns, each of about `TURN_TOKENS`."""
    one = await office.start(compaction={**TIGHT, **compaction})
    async with office.working():
        for n in range(turns):
            await office.say(one, f"{n}: {words}")
            await office.turns_end(one, n + 1)
    return one


async def goes_on(office: Office, one: UUID, text: str = "And now?") -> list[dict[str, Any]]:
    """Let one more turn happen, and return the messages of its last request."""
    turns = sum(isinstance(event, events.TurnEnded) for event in await office.log(one))
    async with office.working():
        await office.say(one, text)
        await office.turns_end(one, turns + 1)
    return [dict(message) for message in office.model.requests[-1].messages]


def context() -> CommandContext:
    return CommandContext(LOCAL, uuid4(), "hash", keyed=False)


async def summaries(office: Office, one: UUID) -> list[SummaryRecorded]:
    found = await summary_events(office.store, one)
    return [event for event in found if isinstance(event, SummaryRecorded)]


def of(office: Office) -> Summarising:
    assert isinstance(office.model, Summarising)
    return office.model


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


async def test_a_request_that_is_refused_for_its_length_is_compacted_once_and_the_turn_goes_on(office: Office) -> None:
    one = await talked(office, 6, budget_tokens=100_000)
    too_long = ModelError("context_window", "too long", retryable=False)
    office.model.script += [too_long, says("At last.")]
    messages = await goes_on(office, one)
    log = await office.log(one)
    [resumed] = [event for event in log if isinstance(event, events.TurnResumed)]
    [summary] = await summaries(office, one)
    assert resumed.summary_to_seq == summary.to_seq
    assert SUMMARY in messages[0]["content"]
    assert messages[-1]["content"] == "And now?"
    assert isinstance(log[-1], events.TurnEnded)
    assert log[-1].outcome == "completed"


async def test_a_single_turn_that_is_too_long_loses_its_oldest_results_and_then_fails(office: Office) -> None:
    office = Office(model=Summarising(), tools=(read_much,))
    one = await office.start(compaction={"budget_tokens": 100_000})
    too_long = ModelError("context_window", "too long", retryable=False)
    office.model.script += [says("", ("read_much", {})), says("", ("read_much", {})), too_long, says("Enough.")]
    messages = await goes_on(office, one)
    results = [message["content"] for message in messages if message["role"] == "tool"]
    assert results[0].startswith("[The result of this call was left out")
    assert results[1] == "much " * 500
    assert isinstance(ended := (await office.log(one))[-1], events.TurnEnded)
    assert ended.outcome == "completed"

    office.model.script += [says("", ("read_much", {})), says("", ("read_much", {})), *[too_long] * 4]
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
