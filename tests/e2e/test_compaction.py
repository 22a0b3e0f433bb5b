"""What the model sees of a long conversation: summaries made beside the turns, with nothing else changed by them."""

from __future__ import annotations

import asyncio
import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from domain.tokens import tokens_of
from tests.support import agent_tools
from tests.support.long_form import LONG as LONG_FORM
from tests.support.model_script import Rule, Script, Scripted, call, calls, context_window_exceeded, gate, says, text_of
from tests.support.system import of_type, types

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer, Received
    from tests.support.system import Conversation, System

SUMMARY = "## Goal\nA trip.\n\n## Critical context\nThe code is 4711."
SUMMARISES = Rule(answer=says(SUMMARY), any_text="^You summarise")
AGREES = Rule(answer=says("Yes."))
TIGHT = {"budget_tokens": 800, "keep_recent_tokens": 400}
LONG = "word " * 200
PATIENCE_S = 60


async def summaries(conversation: Conversation, *, at_least: int = 1) -> list[Any]:
    """Wait until so many summaries are shown, and return them."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = await conversation.system.get(f"{conversation.path}/summaries?limit=200")
            if len(answer["items"]) >= at_least:
                return list(answer["items"])
            await asyncio.sleep(0.02)


async def talked(system: System, turns: int, **compaction: Any) -> Conversation:
    """Begin a conversation of so many turns, each of about 260 tokens."""
    conversation = await system.start(compaction={**TIGHT, **compaction})
    for n in range(turns):
        await conversation.say(f"{n} {LONG}")
        await conversation.turn_ends(n + 1)
    return conversation


def of_turns(model_server: ModelServer) -> list[Received]:
    """Return the requests for replies."""
    return [one for one in model_server.received if not is_summary(one)]


def is_summary(received: Received) -> bool:
    return str(received.body["messages"][0]["content"]).startswith("You summarise")


def prefix_of(received: Received) -> bytes:
    """Return a request's body up to the end of its messages, which are the first of it."""
    assert received.raw.startswith(b'{"messages":[')
    return received.raw[: received.raw.index(b'],"model":"scripted"')]


async def test_c3_a_turn_over_budget_is_followed_by_a_summary_that_the_next_turn_sees(
    system: System, model_server: ModelServer
) -> None:
    model_server.rule(SUMMARISES, AGREES)
    conversation = await talked(system, 3)
    ended = of_type(await conversation.events(), "turn_ended")
    assert [one.get("compact") for one in ended][-1] is True
    [summary] = await summaries(conversation)
    assert {
        "from_seq": 1,
        "content": SUMMARY,
        "version": 1,
        "strategy": "llm",
        "revoked": False,
    }.items() <= summary.items()
    before = await conversation.events()
    await conversation.say("and now?")
    events = await conversation.turn_ends(4)
    assert events[: len(before)] == before, "C1"
    assert of_type(events, "turn_started")[-1]["summary_to_seq"] == summary["to_seq"]
    assert SUMMARY in of_turns(model_server)[-1].body["messages"][0]["content"]


async def test_c3_a_turn_does_not_wait_for_the_summary_that_is_being_made(
    system: System, model_server: ModelServer
) -> None:
    model_server.rule(Rule(answer=says("## Goal\n", gate("summary"), "A trip."), any_text="^You summarise"), AGREES)
    conversation = await talked(system, 3)
    async with asyncio.timeout(PATIENCE_S):
        while not any(map(is_summary, model_server.received)):
            await model_server.requests(len(model_server.received) + 1, timeout_s=PATIENCE_S)
    await conversation.say("meanwhile?")
    await conversation.turn_ends(4)
    assert len(of_turns(model_server)[-1].body["messages"]) == 7
    model_server.open("summary")
    await summaries(conversation)
    await conversation.say("and now?")
    await conversation.turn_ends(5)
    assert "A trip." in of_turns(model_server)[-1].body["messages"][0]["content"]


async def test_c3_each_request_begins_with_the_bytes_of_the_one_before(
    system: System, model_server: ModelServer
) -> None:
    model_server.rule(SUMMARISES, AGREES)
    conversation = await talked(system, 3)
    await summaries(conversation)
    asked = len(of_turns(model_server))
    model_server.expect(
        says("Ä ö 🦜", calls(call("add", {"a": 1, "b": 2}))), says(calls(call("add", {"a": 3, "b": 4})))
    )
    await conversation.say("add")
    await conversation.turn_ends(4)
    await conversation.say("more?")
    await conversation.turn_ends(5)
    requests = of_turns(model_server)[asked:]
    assert len(requests) == 4
    for former, later in pairwise(requests):
        assert later.raw.startswith(prefix_of(former))
    assert SUMMARY in requests[0].body["messages"][0]["content"]


async def test_c4_a_rebuild_of_summaries_asks_no_model_and_a_revoked_one_is_not_seen_any_more(
    system: System, model_server: ModelServer
) -> None:
    model_server.rule(SUMMARISES, AGREES)
    conversation = await talked(system, 3)
    [summary] = await summaries(conversation)
    asked = len(model_server.received)
    await system.post("/v1/projections/summaries/rebuild", {}, status=202)
    async with asyncio.timeout(PATIENCE_S):
        while not await rebuilt(system):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)
    assert await summaries(conversation) == [summary]
    assert len(model_server.received) == asked

    path = f"{system.url}{conversation.path}/summaries/{summary['to_seq']}"
    async with system.session.delete(path) as response:
        assert response.status == 200
        answer = await response.json()
    assert answer["revoked"] == [summary["to_seq"]]
    async with system.session.delete(path) as response:
        assert response.status == 404
    shown = await system.get(f"{conversation.path}/summaries?min_position={answer['position']}")
    assert [one["revoked"] for one in shown["items"]] == [True]
    await conversation.say("and now?")
    await conversation.turn_ends(4)
    assert SUMMARY not in str(of_turns(model_server)[-1].body)
    assert len(of_turns(model_server)[-1].body["messages"]) == 7


async def rebuilt(system: System) -> bool:
    items = (await system.get("/v1/projections"))["items"]
    [summaries] = [one for one in items if one["name"] == "summaries"]
    return bool(summaries["generation"] == 2)


async def test_compact_by_hand_is_accepted_once_for_a_key_and_refused_after_the_end(
    system: System, model_server: ModelServer
) -> None:
    model_server.rule(SUMMARISES, AGREES)
    conversation = await talked(system, 2)
    key = {"Idempotency-Key": "once"}
    answer = await system.post(f"{conversation.path}/compact", {}, status=202, headers=key)
    assert answer == await system.post(f"{conversation.path}/compact", {}, status=202, headers=key)
    assert (answer["conversation_id"], answer["seq"]) == (conversation.id, 1)
    [summary] = await summaries(conversation)
    assert summary["based_on"] is None
    assert len([one for one in model_server.received if is_summary(one)]) == 1
    await system.post(f"{conversation.path}/end", {}, status=200)
    await system.post(f"{conversation.path}/compact", {}, status=409)
    await system.post("/v1/conversations/00000000-0000-4000-8000-000000000000/compact", {}, status=404)


async def test_c5_a_big_result_is_cut_the_same_in_every_request_and_keeps_its_pair(
    system: System, model_server: ModelServer
) -> None:
    conversation = await system.start(compaction={"budget_tokens": 4_000})
    agent_tools.gates[gate_ := "x" * 9_000].set()
    model_server.expect(says(calls(call("wait_for", {"gate": gate_}))))
    model_server.expect(says(calls(call("add", {"a": 1, "b": 1}))))
    await conversation.say("go")
    events = await conversation.turn_ends()
    assert [result["status"] for result in of_type(events, "tool_result")] == ["ok", "ok"]
    contents = [
        [message["content"] for message in one.body["messages"] if message["role"] == "tool"]
        for one in of_turns(model_server)[1:]
    ]
    assert contents[0][0] == contents[1][0]
    assert re.search(r"\[Cut off here: 9,0\d\d bytes in all\. Call the tool again", contents[0][0])
    assert len(contents[0][0]) < 4_200


async def test_a_window_that_is_exceeded_is_made_room_in_and_the_turn_goes_on(
    system: System, model_server: ModelServer
) -> None:
    model_server.rule(SUMMARISES, AGREES)
    conversation = await talked(system, 4, budget_tokens=100_000, keep_recent_tokens=20_000)
    model_server.expect(context_window_exceeded())
    await conversation.say("and now?")
    events = await conversation.turn_ends(5)
    [resumed] = of_type(events, "turn_resumed")
    [summary] = await summaries(conversation)
    assert (resumed["attempt"], resumed["summary_to_seq"]) == (2, summary["to_seq"])
    assert of_type(events, "turn_ended")[-1]["outcome"] == "completed"
    assert SUMMARY in of_turns(model_server)[-1].body["messages"][0]["content"]
    assert types(events).count("user_msg") == 5


class KeepsFacts(Script):
    """Says little in turns; a summary has every fact that its request shows."""

    def answer(self, body: dict[str, Any]) -> Scripted:
        first, *_, last = map(text_of, body["messages"]) if len(body["messages"]) > 1 else ["", ""]
        if first.startswith("You summarise"):
            return says("## Critical context\n" + " ".join(dict.fromkeys(FACT.findall(last))))
        return says("Noted.")


FACT = re.compile(r"fact-\d+")
TURNS = 500 if LONG_FORM else 30


async def chatted(system: System, model_server: ModelServer, **compaction: Any) -> Conversation:
    """Say something in so many turns, in each fifth a new fact; look at each request, and wait for each summary."""
    conversation = await system.start(compaction=compaction)
    planted: list[str] = []
    made = seq = 0
    for n in range(TURNS):
        planted += [f"fact-{n}"] if n % 5 == 0 else []
        await conversation.say(f"message {n} {planted[-1] if n % 5 == 0 else ''} {'word ' * (20 + n % 20)}")
        ended = await next_end(conversation, seq)
        seq = ended["seq"]
        messages = of_turns(model_server)[-1].body["messages"]
        assert tokens_of(messages) <= compaction.get("budget_tokens", 1_000_000)
        assert set(FACT.findall(json.dumps(messages))) == set(planted)
        if ended["data"].get("compact"):
            made += 1
            await summaries(conversation, at_least=made)
    assert bool(made) == (compaction["strategy"] == "llm")
    return conversation


async def next_end(conversation: Conversation, after: int) -> Any:
    """Wait for the end of the turn after a seq."""
    path = f"{conversation.system.url}{conversation.path}/stream?after={after}"
    async with asyncio.timeout(PATIENCE_S), conversation.system.session.get(path) as stream:
        async for line in stream.content:
            if line.startswith(b"data: ") and b'"turn_ended"' in line:
                return json.loads(line[6:])
    raise AssertionError("the stream ended")


async def shown(conversation: Conversation) -> list[tuple[str, Any]]:
    """Return all that people see."""
    rows: list[Any] = []
    position = (await newest(conversation))[-1]["position"]
    while True:
        after = rows[-1]["seq"] if rows else 0
        path = f"{conversation.path}/messages?after_seq={after}&limit=200&min_position={position}"
        page = await conversation.system.get(path)
        rows += page["items"]
        if page["next_cursor"] is None:
            return [(row["message_type"], row["content"]) for row in rows]


async def test_r9_a_long_conversation_stays_within_its_budget_forgets_no_fact_and_is_shown_as_without_compaction(
    system: System, model_server: ModelServer
) -> None:
    model_server.script = KeepsFacts()
    compacted = await chatted(system, model_server, strategy="llm", budget_tokens=600, keep_recent_tokens=250)
    whole = await chatted(system, model_server, strategy="none")
    assert types(await newest(compacted)) == types(await newest(whole)), "C1"
    assert await shown(compacted) == await shown(whole)
    position = (await newest(whole))[-1]["position"]
    found = await system.get(f"/v1/conversations?q=%22message+3%22&min_position={position}")
    assert {one["id"] for one in found["items"]} == {compacted.id, whole.id}


async def newest(conversation: Conversation) -> list[Any]:
    return list((await conversation.system.get(f"{conversation.path}/events?limit=200"))["items"])
