"""Wherever a conversation is cut: what is summarised and what stays are the whole, each message once."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from domain.compaction import Budget, after, cut, first_needed
from domain.events import TurnEnded
from domain.scope import SYSTEM
from domain.summaries import event
from domain.summary_events import SummaryRecorded
from domain.wire import decode, dumps
from domain.working_set import UnansweredCall, working_set
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
