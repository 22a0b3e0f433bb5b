"""What the model sees of a long conversation: summaries made beside the turns, with nothing else changed by them."""

from __future__ import annotations

import asyncio
import re
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.support import agent_tools
from tests.support.long_conversations import (
    AGREES,
    SUMMARISES,
    SUMMARY,
    is_summary,
    of_turns,
    rebuilt,
    summaries,
    talked,
)
from tests.support.model_script import Rule, call, calls, context_window_exceeded, gate, says
from tests.support.slack import PATIENCE_S
from tests.support.system import of_type, types

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer, Received
    from tests.support.system import System


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
            await model_server.requests(len(model_server.received) + 1)
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
    await rebuilt(system, "summaries")
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
