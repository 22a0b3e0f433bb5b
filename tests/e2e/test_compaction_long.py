"""A long conversation of the whole system at a small budget: 60 turns, and 500 with ``REJOINDER_LONG=1``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from domain.tokens import tokens_of
from tests.support.long_conversations import compacted, newest, next_end, of_turns, paired, rebuilt, summaries
from tests.support.long_form import LONG as LONG_FORM
from tests.support.model_script import Script, Scripted, call, calls, says, text_of

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer
    from tests.support.system import Conversation, System

TURNS = 500 if LONG_FORM else 60
BUDGET = 700
PLANTED_EVERY, ADDED_EVERY, TOO_LONG_EVERY = 10, 3, 25
FACT = re.compile(r"fact-\d+")
CALL_ID = re.compile(r"call_[0-9a-f]{32}")


class KeepsFacts(Script):
    """Says little in turns, and adds when it is told to; a summary has every fact that its request shows."""

    def answer(self, body: dict[str, Any]) -> Scripted:
        first, last = text_of(body["messages"][0]), body["messages"][-1]
        if first.startswith("You summarise"):
            return says("## Critical context\n" + " ".join(dict.fromkeys(FACT.findall(text_of(last)))))
        if last["role"] == "user" and " add " in text_of(last):
            return says(calls(call("add", {"a": 1, "b": 2})))
        return says("Noted.")


@dataclass
class Chat:
    """A conversation of `TURNS` turns, and what was measured of it."""

    conversation: Conversation
    compactions: int = 0
    largest: int = 0
    too_long: int = 0
    turn_ms: list[float] = field(default_factory=list)


async def chatted(system: System, model_server: ModelServer, database_url: str, **compaction: Any) -> Chat:
    """Say something in so many turns, in some a new fact; look at each request, and wait for each compaction."""
    chat = Chat(await system.start(compaction=compaction))
    budget = compaction.get("budget_tokens", 10**9)
    planted: list[str] = []
    asked, seq = len(of_turns(model_server)), 0
    for n in range(TURNS):
        said = [f"message {n}", "word " * (20 + n % 20)]
        if n % PLANTED_EVERY == 0:
            planted.append(f"fact-{n}")
            said.append(planted[-1])
        if n % ADDED_EVERY == 0:
            said.append("now add them")
        if n % TOO_LONG_EVERY == TOO_LONG_EVERY - 1:
            said.append("word " * 1_400)
        began = monotonic()
        await chat.conversation.say(" ".join(said))
        ended = await next_end(chat.conversation, seq)
        chat.turn_ms.append((monotonic() - began) * 1000)
        seq = ended["seq"]
        assert ended["data"]["outcome"] == "completed"
        received = of_turns(model_server)
        for request in received[asked:]:
            messages = request.body["messages"]
            size, turn = tokens_of(messages), tokens_of(messages[newest_turn(messages) :])
            assert size <= budget or turn > budget, f"{size} tokens in turn {n}, of which {turn} are its own"
            chat.largest, chat.too_long = max(chat.largest, size), chat.too_long + (size > budget)
            assert set(FACT.findall(json.dumps(messages))) == set(planted)
            assert paired(messages)
        asked = len(received)
        if ended["data"].get("compact"):
            chat.compactions += 1
            before = await newest(chat.conversation, 20)
            await compacted(chat.conversation, database_url)
            assert await newest(chat.conversation, 20) == before, "C1"
    return chat


def newest_turn(messages: list[dict[str, Any]]) -> int:
    """Return where the newest message of the user is."""
    return max(n for n, message in enumerate(messages) if message["role"] == "user")


async def whole_log(conversation: Conversation) -> list[dict[str, Any]]:
    """Return every event, from the first."""
    log: list[dict[str, Any]] = []
    while True:
        after = log[-1]["seq"] if log else 0
        path = f"{conversation.path}/events?oldest=true&limit=200&after={after}"
        if not (items := (await conversation.system.get(path))["items"]):
            return log
        log += items


async def shown(conversation: Conversation) -> list[tuple[str, str]]:
    """Return all that people see, without what is new in every conversation."""
    rows: list[Any] = []
    position = (await newest(conversation, 1))[-1]["position"]
    while True:
        after = rows[-1]["seq"] if rows else 0
        path = f"{conversation.path}/messages?after_seq={after}&limit=200&min_position={position}"
        page = await conversation.system.get(path)
        rows += page["items"]
        if page["next_cursor"] is None:
            return [(row["message_type"], CALL_ID.sub("call", json.dumps(row["content"]))) for row in rows]


@pytest.mark.timeout(1800 if LONG_FORM else 600)
async def test_r9_a_long_conversation_stays_within_its_budget_forgets_no_fact_and_is_shown_as_without_compaction(
    system: System, model_server: ModelServer, database_url: str
) -> None:
    model_server.script = KeepsFacts()
    tight = {"strategy": "llm", "budget_tokens": BUDGET, "keep_recent_tokens": 250}
    small = await chatted(system, model_server, database_url, **tight)
    asked = len(model_server.received)
    whole = await chatted(system, model_server, database_url, strategy="none")
    assert small.compactions > TURNS / 20
    assert (small.too_long > 0, whole.compactions) == (True, 0)

    log = await whole_log(small.conversation)
    assert [event["type"] for event in log] == [event["type"] for event in await whole_log(whole.conversation)], "C1"
    assert [event["seq"] for event in log] == list(range(1, len(log) + 1))
    seen = await shown(small.conversation)
    assert seen == await shown(whole.conversation)
    found = await system.get(f"/v1/conversations?q=%22message+3%22&min_position={log[-1]['position']}")
    assert small.conversation.id in {one["id"] for one in found["items"]}, "a summary stands for it, and it is found"

    made, requests = await summaries(small.conversation), len(model_server.received)
    await rebuilt(system, "summaries")
    assert await summaries(small.conversation) == made
    assert len(model_server.received) == requests, "C4"
    print(
        f"{TURNS} turns, {len(log)} events, {len(seen)} rows shown, {small.compactions} compactions of {len(made)} "
        f"summaries, {asked} requests of which {small.too_long} beyond the budget of {BUDGET} for their turn alone, "
        f"largest {small.largest} tokens (without compaction {whole.largest}); ms a turn, median of the first and the "
        f"last tenth: {ends_of(small.turn_ms)}, without compaction {ends_of(whole.turn_ms)}"
    )


def ends_of(turn_ms: list[float]) -> str:
    """Say how long turns took at the beginning and at the end."""
    tenth = len(turn_ms) // 10
    return f"{median(turn_ms[:tenth]):.0f} and {median(turn_ms[-tenth:]):.0f}"
