"""Messages while people are waited for, from outside: the four strategies, what is queued, stopping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support import agent_tools
from tests.support.model_script import call, calls, gate, says
from tests.support.system import of_type, types

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer
    from tests.support.system import Conversation, System

EMAIL = {"to": "ada@example.org", "body": "hi"}


async def awaiting(system: System, model_server: ModelServer, **settings: Any) -> tuple[Conversation, str]:
    """Start a conversation that waits for an approval and nothing else; return it with the call's id."""
    model_server.expect(says(calls(call("send_email", EMAIL))))
    conversation = await system.start("Write to Ada", **settings)
    (suspension,) = of_type(await conversation.suspends(), "suspension")
    return conversation, suspension["tool_call_id"]


async def user_rows(conversation: Conversation) -> list[tuple[str, str]]:
    """Return the texts of people's messages and their statuses."""
    rows = (await conversation.shown("messages"))["items"]
    return [(row["content"]["text"], row["status"]) for row in rows if row["message_type"] == "user"]


async def test_b1_h4_an_enqueued_message_waits_for_the_decision_and_is_seen_to_wait(
    system: System, model_server: ModelServer
) -> None:
    conversation, email = await awaiting(system, model_server)
    receipts = [await conversation.say(text) for text in ("Two", "Three")]
    assert [receipt["queued"] for receipt in receipts] == [1, 2]
    assert await user_rows(conversation) == [
        ("Write to Ada", "completed"),
        ("Two", "pending"),
        ("Three", "pending"),
    ]
    assert len(model_server.received) == 1

    await conversation.resolve(email, "approve")
    events = await conversation.turn_ends(2)
    assert [run["id"] for run in agent_tools.runs] == [email]
    assert of_type(events, "turn_started")[1]["answers"] == [receipt["message_id"] for receipt in receipts]
    assert [status for _, status in await user_rows(conversation)] == ["completed"] * 3


async def test_b2_h4_a_steering_message_is_part_of_the_call_after_the_decision(
    system: System, model_server: ModelServer
) -> None:
    conversation, email = await awaiting(system, model_server)
    receipt = await conversation.say("And be brief", when_busy="steer")
    assert receipt["queued"] == 0
    assert (await user_rows(conversation))[-1] == ("And be brief", "pending")

    await conversation.resolve(email, "reject", reason="not now")
    events = await conversation.turn_ends()
    assert types(events).count("turn_started") == 1
    messages = model_server.received[1].body["messages"]
    assert [message["role"] for message in messages[-2:]] == ["tool", "user"]
    assert messages[-1]["content"] == "And be brief"
    assert (await user_rows(conversation))[-1] == ("And be brief", "completed")


async def test_b3_h4_an_interrupt_takes_the_question_back_and_is_answered(
    system: System, model_server: ModelServer
) -> None:
    conversation, email = await awaiting(system, model_server)
    await conversation.say("Never mind: tell a joke", when_busy="interrupt")
    events = await conversation.turn_ends(2)
    stopped = types(events).index("resolution")
    batch = events[stopped : stopped + 4]
    assert types(batch) == ["resolution", "tool_result", "turn_ended", "user_msg"]
    assert len({event["occurred_at"] for event in batch}) == 1, "one append"
    assert (batch[0]["data"]["outcome"], batch[1]["data"]["status"]) == ("cancelled", "cancelled")
    assert [end["outcome"] for end in of_type(events, "turn_ended")] == ["cancelled", "completed"]
    assert (await conversation.resolve(email, "approve", status=409))["type"] == "urn:rejoinder:stale"
    assert agent_tools.runs == []
    inbox = await system.get(f"/v1/tool-calls?min_position={events[-1]['position']}")
    assert inbox["items"] == []


async def test_b4_h4_a_message_that_asks_for_it_is_refused_and_the_decision_still_counts(
    system: System, model_server: ModelServer
) -> None:
    conversation, email = await awaiting(system, model_server)
    body = {"content": "Two", "when_busy": "reject"}
    assert (await system.post(f"{conversation.path}/messages", body, status=409))["type"] == "urn:rejoinder:busy"
    await conversation.resolve(email, "approve")
    assert types(await conversation.turn_ends()).count("user_msg") == 1


async def test_b4_the_conversation_says_how_messages_are_taken_and_a_message_may_say_otherwise(
    system: System, model_server: ModelServer
) -> None:
    conversation, email = await awaiting(system, model_server, when_busy="reject")
    await system.post(f"{conversation.path}/messages", {"content": "Two"}, status=409)
    assert (await conversation.say("Three", when_busy="enqueue"))["queued"] == 1
    await conversation.resolve(email, "approve")
    events = await conversation.turn_ends(2)
    assert len(of_type(events, "user_msg")) == 2


@pytest.mark.parametrize("how", ["cancel", "end"])
async def test_b5_b6_stopping_is_one_append_that_leaves_nothing_open(
    how: str, system: System, model_server: ModelServer
) -> None:
    conversation, email = await awaiting(system, model_server)
    await conversation.say("Two")
    receipt = await system.post(
        f"{conversation.path}/{how}", {"reason": "enough"}, status=202 if how == "cancel" else 200
    )
    events = await conversation.events()
    first = types(events).index("resolution")
    batch = [event for event in events[first:] if event["seq"] <= receipt["seq"]]
    wanted = ["resolution", "tool_result", "turn_ended"] + (["conversation_ended"] if how == "end" else [])
    assert types(batch) == wanted
    assert of_type(batch, "turn_ended")[0] | {"turn": 1} == {"turn": 1, "outcome": "cancelled", "reason": "enough"}
    if how == "cancel":
        events = await conversation.turn_ends(2)  # what waited behind the turn is answered by the next one
        assert of_type(events, "turn_started")[1]["answers"] == [of_type(events, "user_msg")[1]["message_id"]]
    else:
        assert await user_rows(conversation) == [
            ("Write to Ada", "completed"),
            ("Two", "cancelled"),
        ]
    problem = await conversation.resolve(email, "approve", status=409)
    assert problem["type"] == ("urn:rejoinder:stale" if how == "cancel" else "urn:rejoinder:ended")


async def test_b5_cancelling_stops_a_running_tool_and_tells_the_model_that_it_may_have_taken_effect(
    system: System, model_server: ModelServer
) -> None:
    model_server.expect(says(calls(call("wait_for", {"gate": "never"}), call("send_email", EMAIL, index=1))))
    conversation = await system.start("Go")
    await conversation.suspends()
    await agent_tools.ran(1)
    await system.post(f"{conversation.path}/cancel", {}, status=202)
    events = await conversation.turn_ends()
    said = {result["tool_call_id"]: result["content"][0]["text"] for result in of_type(events, "tool_result")}
    running, waiting = (called["tool_call_id"] for called in of_type(events, "tool_call"))
    assert "may have taken effect" in said[running]
    assert "may have taken effect" not in said[waiting]


async def test_b2_a_steer_that_comes_while_no_turn_is_open_is_answered_like_any_other(
    system: System, model_server: ModelServer
) -> None:
    model_server.expect(says(gate("reply"), "One"))
    conversation = await system.start()
    await conversation.say("Hello", when_busy="steer")
    model_server.open("reply")
    assert of_type(await conversation.turn_ends(), "turn_ended")[0]["outcome"] == "completed"
