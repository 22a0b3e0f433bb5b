"""Turns of the agent, from outside: HTTP in, a real model server behind LiteLLM, SSE out."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

from tests.support import agent_tools
from tests.support.model_script import call, calls, fails, gate, says
from tests.support.slack import PATIENCE_S, SLACK_S
from tests.support.system import Conversation, of_type, types

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer
    from tests.support.system import System


async def test_t1_a_plain_turn_is_a_reply_and_its_end_in_one_append(system: System, model_server: ModelServer) -> None:
    model_server.expect(says("Good ", "morning"))
    conversation = await system.start("Hello")
    events = await conversation.turn_ends()
    assert types(events) == ["conversation_started", "user_msg", "turn_started", "assistant_msg", "turn_ended"]
    assert of_type(events, "turn_ended") == [{"turn": 1, "outcome": "completed"}]
    assert events[3]["data"]["content"] == [{"type": "text", "text": "Good morning"}]
    assert events[3]["occurred_at"] == events[4]["occurred_at"]
    assert len(model_server.received) == 1


async def test_t2_a_reply_with_calls_is_one_append_with_suspensions_and_error_results(
    system: System, model_server: ModelServer
) -> None:
    model_server.expect(
        says(
            "Working",
            calls(
                call("add", {"a": 1, "b": 2}, id="x", index=0),
                call("send_email", {"to": "a@example.org", "body": "hi"}, id="y", index=1),
                call("nonsense", {}, id="z", index=2),
                call("add", {"a": "no number", "b": 2}, id="w", index=3),
            ),
        )
    )
    conversation = await system.start("Do it all")
    events = await conversation.until(lambda seen: types(seen).count("tool_result") >= 2)
    first = types(events).index("assistant_msg")
    batch = events[first : first + 8]
    assert types(batch) == ["assistant_msg", *["tool_call"] * 4, "suspension", "tool_result", "tool_result"]
    assert len({event["occurred_at"] for event in batch}) == 1
    refused = [event["data"] for event in batch if event["type"] == "tool_result"]
    assert [result["status"] for result in refused] == ["error", "error"]


async def test_t10_more_steps_than_allowed_end_the_turn_as_failed(system: System, model_server: ModelServer) -> None:
    model_server.expect(*[says(calls(call("add", {"a": 1, "b": 1})))] * 2)
    conversation = await system.start("Never stop", max_steps=2)
    events = await conversation.turn_ends()
    assert of_type(events, "turn_ended") == [{"turn": 1, "outcome": "failed", "reason": "max_steps"}]
    assert len(model_server.received) == 2
    await conversation.say("And now?")
    assert of_type(await conversation.turn_ends(2), "turn_ended")[1]["outcome"] == "completed"


async def test_t11_each_request_pairs_every_call_with_one_result_on_every_path(
    system: System, model_server: ModelServer
) -> None:
    model_server.expect(
        says(
            calls(
                call("add", {"a": 1, "b": 2}, id="1", index=0),
                call("breaks", {}, id="2", index=1),
                call("too_slow", {}, id="3", index=2),
                call("add", "not json", id="4", index=3),
                call("unknown", {}, id="5", index=4),
                call("send_email", {"to": "a@example.org", "body": "hi"}, id="6", index=5),
                call("ask_user", {"question": "Really?"}, id="7", index=6),
            )
        )
    )
    conversation = await system.start("Everything that can happen")
    events = await conversation.suspends(2)
    email, question = (suspension["tool_call_id"] for suspension in of_type(events, "suspension"))
    await conversation.resolve(email, "reject", reason="not that one")
    await conversation.resolve(question, "answer", answer="yes")
    events = await conversation.turn_ends()
    statuses = {result["tool_call_id"]: result["status"] for result in of_type(events, "tool_result")}
    assert sorted(statuses.values()) == ["error"] * 4 + ["ok"] * 2 + ["rejected"]
    assert statuses[email] == "rejected"
    assert_paired(model_server.received[1].body)
    said = {message["tool_call_id"]: str(message["content"]) for message in tool_messages(model_server, 1)}
    assert "not that one" in said[email]
    assert "yes" in said[question]
    assert not any("a secret of ours" in text for text in said.values())


async def test_t11_a_cancelled_turn_leaves_every_call_paired(system: System, model_server: ModelServer) -> None:
    model_server.expect(says(calls(call("wait_for", {"gate": "never"}), call("ask_user", {"question": "?"}, index=1))))
    conversation = await system.start("Begin")
    await conversation.suspends()
    await system.post(f"{conversation.path}/cancel", {}, status=202)
    await conversation.turn_ends()
    await conversation.say("And now?")
    events = await conversation.turn_ends(2)
    assert [result["status"] for result in of_type(events, "tool_result")] == ["cancelled", "cancelled"]
    assert_paired(model_server.received[1].body)


async def test_t12_repeated_provider_ids_never_merge_two_calls(system: System, model_server: ModelServer) -> None:
    same = call("add", {"a": 1, "b": 2}, id="call_0", index=0)
    twice = says(calls(same, call("add", {"a": 3, "b": 4}, id="call_0", index=1)))
    model_server.expect(twice, twice, says("done"))
    conversation = await system.start("Add")
    events = await conversation.turn_ends()
    ids = [one["tool_call_id"] for one in of_type(events, "tool_call")]
    assert len(set(ids)) == 4
    assert sorted(run["id"] for run in agent_tools.runs) == sorted(ids)
    assert sorted(run["args"]["a"] for run in agent_tools.runs) == [1, 1, 3, 3]
    assert_paired(model_server.received[2].body)


async def test_t14_server_tools_run_concurrently_and_an_approval_starts_its_call_at_once(
    system: System, model_server: ModelServer
) -> None:
    model_server.expect(
        says(
            calls(
                call("wait_for", {"gate": "first"}, id="1", index=0),
                call("wait_for", {"gate": "second"}, id="2", index=1),
                call("send_email", {"to": "a@example.org", "body": "hi"}, id="3", index=2),
            )
        )
    )
    conversation = await system.start("Go")
    events = await conversation.suspends()
    (suspended,) = of_type(events, "suspension")
    await agent_tools.ran(2)
    await conversation.resolve(suspended["tool_call_id"], "approve")
    await conversation.until(lambda seen: types(seen).count("tool_result") == 1)
    assert [run["tool"] for run in agent_tools.runs] == ["wait_for", "wait_for", "send_email"]
    agent_tools.gates["second"].set()
    await conversation.until(lambda seen: types(seen).count("tool_result") == 2)
    agent_tools.gates["first"].set()
    events = await conversation.turn_ends()
    assert of_type(events, "turn_ended")[0]["outcome"] == "completed"


async def test_t14_a_steering_message_and_a_cancel_act_while_a_slow_tool_runs(
    system: System, model_server: ModelServer
) -> None:
    model_server.expect(says(calls(call("wait_for", {"gate": "slow"}))))
    conversation = await system.start("Go")
    await conversation.until(lambda seen: "tool_call" in types(seen))
    steer = await conversation.say("Rather stop", when_busy="steer")
    assert steer["queued"] == 0
    await system.post(f"{conversation.path}/cancel", {"reason": "enough"}, status=202)
    events = await conversation.turn_ends(2)
    ends = of_type(events, "turn_ended")
    assert ends[0] == {"turn": 1, "outcome": "cancelled", "reason": "enough"}
    assert of_type(events, "turn_started")[1]["answers"] == [steer["message_id"]]


async def test_c8_a_steering_message_is_part_of_the_next_call_and_stands_where_the_model_saw_it(
    system: System, model_server: ModelServer
) -> None:
    model_server.expect(says(calls(call("wait_for", {"gate": "slow"}))), says("Got it"))
    conversation = await system.start("Go")
    await conversation.until(lambda seen: "tool_call" in types(seen))
    steer = await conversation.say("In French please", when_busy="steer")
    agent_tools.gates["slow"].set()
    events = await conversation.turn_ends()
    replies = of_type(events, "assistant_msg")
    assert replies[0]["context_seq"] < steer["seq"] <= replies[1]["context_seq"]
    assert model_server.received[1].body["messages"][-1] == {"role": "user", "content": "In French please"}
    assert len(of_type(events, "turn_started")) == 1


async def test_b2_a_steering_message_that_comes_while_the_last_reply_is_written_is_still_answered(
    system: System, model_server: ModelServer
) -> None:
    model_server.expect(says("Almost ", gate("reply"), "done"), says("Also that"))
    conversation = await system.start("Go")
    await model_server.requests(1)
    await conversation.say("One more thing", when_busy="steer")
    model_server.open("reply")
    events = await conversation.turn_ends()
    assert [one["content"][0]["text"] for one in of_type(events, "assistant_msg")] == ["Almost done", "Also that"]


async def test_b1_a_message_meanwhile_is_recorded_at_once_costs_no_reply_and_is_answered_next(
    system: System, model_server: ModelServer
) -> None:
    model_server.expect(says("First ", gate("reply"), "answer"), says("Second answer"))
    conversation = await system.start("One")
    await model_server.requests(1)
    receipts = [await conversation.say(text) for text in ("Two", "Three")]
    assert [receipt["queued"] for receipt in receipts] == [1, 2]
    model_server.open("reply")
    events = await conversation.turn_ends(2)
    assert len(model_server.received) == 2
    assert of_type(events, "turn_started")[1]["answers"] == [receipt["message_id"] for receipt in receipts]
    assert "Two" not in json.dumps(model_server.received[0].body["messages"])
    assert [m["content"] for m in model_server.received[1].body["messages"][-2:]] == ["Two", "Three"]


async def test_b3_an_interrupt_stops_the_turn_and_starts_a_new_one(system: System, model_server: ModelServer) -> None:
    model_server.expect(says("So far ", gate("never")), says("Right away"))
    conversation = await system.start("Long story")
    await model_server.requests(1)
    await conversation.say("Stop, do this", when_busy="interrupt")
    events = await conversation.turn_ends(2)
    assert [end["outcome"] for end in of_type(events, "turn_ended")] == ["cancelled", "completed"]
    assert of_type(events, "assistant_msg")[0]["content"][0]["text"] == "Right away"


async def test_b4_a_message_that_asks_for_it_is_refused_while_busy(system: System, model_server: ModelServer) -> None:
    model_server.expect(says(gate("reply"), "done"))
    conversation = await system.start("One")
    await model_server.requests(1)
    before = await conversation.events()
    body = {"content": "Two", "when_busy": "reject"}
    problem = await system.post(f"{conversation.path}/messages", body, status=409)
    assert problem["type"] == "urn:rejoinder:busy"
    assert types(await conversation.events()) == types(before)
    model_server.open("reply")
    await conversation.turn_ends()


async def test_b5_cancel_closes_the_upstream_within_a_second_and_keeps_what_was_said(
    system: System, model_server: ModelServer
) -> None:
    model_server.expect(says("Once upon ", "a time", gate("never")))
    conversation = await system.start("Tell me a story")
    await said_live(conversation, "Once upon a time")
    asked_at = time.monotonic()
    answer = await system.post(f"{conversation.path}/cancel", {"reason": "boring"}, status=202)
    assert answer["cancelled"] is True
    closed_at = await model_server.closed(0)
    assert closed_at - asked_at < 1 + SLACK_S
    events = await conversation.turn_ends()
    (end,) = of_type(events, "turn_ended")
    kept = end.pop("partial_text")  # what was said up to a quarter of a second before
    assert kept
    assert "Once upon a time".startswith(kept)
    assert end == {"turn": 1, "outcome": "cancelled", "reason": "boring"}
    assert "assistant_msg" not in types(events)
    assert (await system.post(f"{conversation.path}/cancel", {}, status=200))["cancelled"] is False


async def test_b6_after_the_end_nothing_is_accepted_and_streams_still_replay(
    system: System, model_server: ModelServer
) -> None:
    model_server.expect(says(calls(call("ask_user", {"question": "?"}))))
    conversation = await system.start("Go")
    events = await conversation.suspends()
    await system.post(f"{conversation.path}/end", {"reason": "over"}, status=200)
    pending = of_type(events, "suspension")[0]["tool_call_id"]
    assert (await conversation.resolve(pending, "answer", answer="x", status=409))["type"] == "urn:rejoinder:ended"
    refused = await system.post(f"{conversation.path}/messages", {"content": "hello?"}, status=409)
    assert refused["type"] == "urn:rejoinder:ended"
    events = await conversation.until(lambda seen: "conversation_ended" in types(seen))
    assert types(events)[-4:] == ["resolution", "tool_result", "turn_ended", "conversation_ended"]


async def test_t9_a_failed_provider_ends_the_turn_typed_and_the_next_message_works(
    system: System, model_server: ModelServer
) -> None:
    model_server.expect(fails(401))
    conversation = await system.start("Hello")
    events = await conversation.turn_ends()
    assert of_type(events, "turn_ended")[0] == {"turn": 1, "outcome": "failed", "reason": "auth"}
    await conversation.say("Again")
    assert of_type(await conversation.turn_ends(2), "turn_ended")[1]["outcome"] == "completed"


def tool_messages(model_server: ModelServer, request: int) -> list[dict[str, Any]]:
    """Return the tool results that a request carried."""
    return [message for message in model_server.received[request].body["messages"] if message["role"] == "tool"]


def assert_paired(body: dict[str, Any]) -> None:
    """Every call of the request has exactly one result, right after the reply that asked for it."""
    open_calls: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
        else:
            assert not open_calls
            open_calls = [one["id"] for one in message.get("tool_calls") or ()]
            assert len(set(open_calls)) == len(open_calls)
    assert not open_calls


async def said_live(conversation: Conversation, text: str) -> None:
    """Wait until whoever connects now is shown this text as what the reply has said so far."""
    path = conversation.system.url + conversation.path + "/stream"
    async with asyncio.timeout(PATIENCE_S):
        while True:
            async with conversation.system.session.get(path) as response:
                name = b""
                async for line in response.content:
                    if line.startswith(b"event: "):
                        name = line[7:].strip()
                    elif line.startswith(b"data: ") and name in (b"partial", b"delta"):
                        said = json.loads(line[6:])
                        if name == b"partial" and said["text"] == text:
                            return
                        if said["kind"] == "text" and said["text"]:
                            break  # connect again
