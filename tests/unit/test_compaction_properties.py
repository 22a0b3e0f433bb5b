"""Whatever happens to a conversation: what is summarised of it and what stays are the whole, each message once."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from commands.summaries import PAGE, summary_events, summary_state
from domain.compaction import Budget, after, cut, first_needed
from domain.events import TurnEnded
from domain.scope import SYSTEM
from domain.summaries import event, in_force
from domain.summary_events import SummaryRecorded, SummaryRequested, SummaryRevoked
from domain.wire import decode, dumps, encode, summary_stream_of
from domain.working_set import UnansweredCall, working_set
from infra.memory_event_store import MemoryEventStore
from tests.support.given import CONVERSATION, NOW
from tests.support.random_log import random_log

if TYPE_CHECKING:
    from domain.compaction import Cut
    from domain.event_envelope import ConversationEvent
    from domain.provider_messages import ProviderMessage

LOGS = 20
TIGHT = Budget("llm", tokens=120, keep_recent=60, result_bytes=2_000, summary_tokens=30)


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_c2_c5_t11_wherever_it_is_cut_each_message_is_there_once_and_each_call_with_its_result(
    seed: int, *, asked: bool
) -> None:
    chance = random.Random(seed)
    cuts = 0
    for _ in range(LOGS):
        log = [decode(stored) for stored in random_log(chance, steps=120)]
        budget = replace(TIGHT, keep_recent=chance.choice((0, 60, 400)))
        latest: SummaryRecorded | None = None
        whole = rendered(log)
        summarised: list[ProviderMessage] = []
        while part := part_of(latest, log, budget, asked=asked, most_tokens=chance.choice((1, 100, 10_000))):
            cuts += 1
            assert isinstance(log[part.to_seq - 1], TurnEnded)
            assert part.from_seq == (latest.to_seq + 1 if latest else 1)
            assert part.to_seq > (latest.to_seq if latest else 0), "it covers something new"
            summarised += part.messages
            latest = recorded(part)
            left = rendered(after(latest, [one for one in log if one.seq >= first_needed(latest)]))
            assert sorted(map(dumps, [*summarised, *left])) == sorted(map(dumps, whole))
            if not part.carried:  # what is carried over comes later than it would have
                assert left == whole[len(summarised) :]
            paired(summarised)
            paired(left)
    assert cuts > LOGS


@pytest.mark.parametrize("seed", range(20))
async def test_c2_c4_the_newest_pages_say_as_much_as_the_whole_stream_of_summaries(seed: int) -> None:
    chance, store = random.Random(seed), MemoryEventStore()
    whole: list[ConversationEvent] = []
    for _ in range(60):
        live = [one.to_seq for one in in_force(whole)]
        kind = chance.choice((SummaryRecorded, SummaryRecorded, SummaryRequested, SummaryRevoked))
        if kind is SummaryRevoked and not live:
            continue
        fields: dict[str, Any] = {}
        if kind is SummaryRecorded:
            base = live[-1] if live else None
            fields = {"from_seq": (base or 0) + 1, "to_seq": (base or 0) + chance.randrange(1, 9), "based_on": base}
            fields |= {"content": "s", "version": 1, "strategy": "llm", "tokens_before": 9, "context_seq": 999}
        elif kind is SummaryRevoked:
            fields = {"to_seq": chance.choice(live)}
        made = encode(event(kind, CONVERSATION, now=NOW, actor=SYSTEM, **fields))
        await store.append(summary_stream_of(CONVERSATION), [made], len(whole))
        whole = await summary_events(store, CONVERSATION)
        state = await summary_state(store, CONVERSATION)
        live = [one.seq for one in in_force(whole)]
        assert (state.seq, state.latest and state.latest.seq) == (len(whole), live[-1] if live else None)
        assert state.to_seq == max((one.to_seq for one in in_force(whole)), default=None)
        newest = {type(one): one.seq for one in whole}
        decided = max(newest.get(SummaryRecorded, 0), newest.get(SummaryRevoked, 0))
        assert (state.changed, state.requested) == (
            decided, newest.get(SummaryRequested, 0) > newest.get(SummaryRecorded, 0),
        )  # fmt: skip
    assert len(whole) > 2 * PAGE


def rendered(log: list[ConversationEvent]) -> list[ProviderMessage]:
    """Render a log up to its newest event at which a model may be called."""
    while True:
        try:
            return working_set(log, system_prompt=None, model="demo", result_bytes=TIGHT.result_bytes)
        except UnansweredCall:
            log = log[:-1]


def part_of(
    latest: SummaryRecorded | None, log: list[ConversationEvent], budget: Budget, *, asked: bool, most_tokens: int
) -> Cut | None:
    """Say what is summarised next."""
    return cut(
        latest, after(latest, log), budget, system_prompt=None, model="demo", asked=asked, most_tokens=most_tokens
    )


def recorded(part: Cut) -> SummaryRecorded:
    """Make the summary of a part."""
    made = event(
        SummaryRecorded,
        CONVERSATION,
        now=NOW,
        actor=SYSTEM,
        from_seq=part.from_seq,
        to_seq=part.to_seq,
        content="s",
        version=1,
        strategy="llm",
        tokens_before=part.tokens_before,
        carried=part.carried,
        context_seq=part.context_seq,
    )
    assert isinstance(made, SummaryRecorded)
    return made


def paired(messages: list[ProviderMessage]) -> None:
    """Each call is followed by its results, and by them alone."""
    called = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    assert called == [message["tool_call_id"] for message in messages if message["role"] == "tool"]
