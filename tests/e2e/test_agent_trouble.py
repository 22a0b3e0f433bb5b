"""When the model fails, from outside: a typed reason, a row for people, and the next message works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support import agent_tools
from tests.support.model_script import Rule, call, calls, context_window_exceeded, drop, fails, says
from tests.support.system import of_type, types

if TYPE_CHECKING:
    from tests.support.model_script import Scripted
    from tests.support.model_server import ModelServer
    from tests.support.system import Conversation, System

NOW_AGAIN = {"retry_after": "0"}
TRANSFER = call("add", '{"a": 1, "b": 2}')
CUT = says("I will", calls(TRANSFER), finish="length")


async def shown(conversation: Conversation) -> list[dict[str, Any]]:
    """Return what people see by now."""
    return list((await conversation.shown("messages"))["items"])


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([fails(429, **NOW_AGAIN)] * 3, "rate_limited"),
        ([fails(503, **NOW_AGAIN)] * 3, "unavailable"),
        ([says("So ", drop())] * 3, "unavailable"),
        ([context_window_exceeded()], "context_window"),
        ([fails(401)], "auth"),
        ([fails(400, type="invalid_request_error")], "bad_request"),
        ([says("So far", finish=None)], "truncated"),
        ([says("So far", finish="length")], "truncated"),
        ([CUT], "truncated"),
    ],
)
async def test_t9_a_failed_turn_has_its_reason_shows_an_error_and_the_next_message_works(
    answers: list[Scripted], reason: str, system: System, model_server: ModelServer
) -> None:
    model_server.expect(*answers)
    conversation = await system.start("Hello")

    events = await conversation.turn_ends()
    (ended,) = of_type(events, "turn_ended")
    assert (ended["outcome"], ended["reason"]) == ("failed", reason)
    assert len(model_server.received) == len(answers)
    assert "assistant_msg" not in types(events), "nothing partial is a reply"
    assert agent_tools.runs == [], "what was cut off never runs"
    question, error = await shown(conversation)
    assert question["status"] == "completed"
    assert (error["message_type"], error["content_type"], error["status"]) == ("system", "error", "failed")
    assert error["content"]["reason"] == reason

    await conversation.say("Again")
    assert of_type(await conversation.turn_ends(2), "turn_ended")[1]["outcome"] == "completed"
    assert (await shown(conversation))[-1]["content"]["text"] == "You said: Again"


async def test_t9_c7_a_reply_that_was_cut_off_is_paid_for(system: System, model_server: ModelServer) -> None:
    model_server.expect(CUT)
    conversation = await system.start("Hello")
    (ended,) = of_type(await conversation.turn_ends(), "turn_ended")
    assert [(usage["input_tokens"], usage["output_tokens"]) for usage in ended["usage"]] == [(10, 5)]


@pytest.mark.parametrize("fault", [fails(503, **NOW_AGAIN), says("So far", finish="length"), fails(401)])
async def test_t9_a_fallback_model_answers_when_the_first_one_cannot(
    fault: Scripted, system: System, model_server: ModelServer
) -> None:
    model_server.rule(Rule(answer=fault, model="scripted"), Rule(answer=says("By the spare"), model="spare"))
    conversation = await system.start("Hello", fallback_models=["openai/spare"])

    events = await conversation.turn_ends()
    (reply,) = of_type(events, "assistant_msg")
    assert (reply["model"], reply["content"][0]["text"]) == ("openai/spare", "By the spare")
    assert of_type(events, "turn_ended")[0]["outcome"] == "completed"
    assert [row["content_type"] for row in await shown(conversation)] == ["text", "text"]


async def test_t9_a_turn_that_fails_after_its_tools_ran_keeps_their_results(
    system: System, model_server: ModelServer
) -> None:
    model_server.expect(says(calls(call("add", {"a": 1, "b": 2}))), fails(400))
    conversation = await system.start("Add")
    events = await conversation.turn_ends()
    assert types(events)[-2:] == ["tool_result", "turn_ended"]

    await conversation.say("And?")
    await conversation.turn_ends(2)
    roles = [message["role"] for message in model_server.received[-1].body["messages"]]
    assert roles == ["user", "assistant", "tool", "user"]


async def test_t10_what_people_see_of_a_turn_that_took_too_many_steps(
    system: System, model_server: ModelServer
) -> None:
    model_server.rule(Rule(answer=says(calls(call("add", {"a": 1, "b": 1}))), any_text="Never stop", times=2))
    conversation = await system.start("Never stop", max_steps=2)
    await conversation.turn_ends()
    error = (await shown(conversation))[-1]
    assert (error["content_type"], error["content"]["reason"]) == ("error", "max_steps")
