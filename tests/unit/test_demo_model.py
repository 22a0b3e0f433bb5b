"""The demo model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from commands.agent.model import Delta, ModelReply, ModelRequest
from domain.hook_context import context_message
from domain.parts import text_of
from domain.summarising import INSTRUCTIONS
from infra.demo_model import DemoModel, answer
from infra.models import ModelRouter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

ALL = {"current_time", "send_email", "ask_user", "get_location"}
TIME: tuple[str, Any] = ("current_time", {})
LOCATION: tuple[str, Any] = ("get_location", {})
QUESTION = ("ask_user", {"question": "What is your favourite colour?"})


def _says(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _email(body: str, to: str = "ada@example.org") -> tuple[str, Any]:
    return "send_email", {"to": to, "body": body}


async def _stream(*messages: dict[str, Any], tools: set[str] | None = None) -> tuple[list[Delta], ModelReply]:
    offered = [{"type": "function", "function": {"name": name}} for name in sorted(ALL if tools is None else tools)]
    items = [item async for item in DemoModel(word_delay_s=0).stream(ModelRequest("demo", messages, offered))]
    reply = items.pop()
    assert isinstance(reply, ModelReply)
    return [item for item in items if isinstance(item, Delta)], reply


async def test_an_echo_streams_word_by_word_and_the_reply_is_the_sum_of_its_deltas() -> None:
    deltas, reply = await _stream(_says("hello  there,\nyou"))

    assert [delta.text for delta in deltas] == ["You ", "said: ", "hello ", "there, ", "you"]
    assert text_of(reply.content) == "".join(delta.text for delta in deltas) == "You said: hello there, you"
    assert (reply.finish_reason, reply.tool_requests) == ("stop", ())


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("What time is it?", [TIME]),
        ("ask me something", [QUESTION]),
        ("where am I?", [LOCATION]),
        ("email ada@example.org: hi", [_email("hi")]),
        ("Please EMAIL ada@example.org: see you at 5, and bring cake!", [_email("see you at 5, and bring cake!")]),
        ("email ada@example.org: hi\nthanks", [_email("hi")]),
        ("email ada@example.org: hi, email ben@example.org: ho", [_email("hi"), _email("ho", "ben@example.org")]),
        ("what time is it, email ada@example.org: hi and where am I", [TIME, _email("hi"), LOCATION]),
        ("ask me something; what time is it; what time is it", [QUESTION, TIME, TIME]),
        ("email me the time", []),
    ],
)
async def test_what_is_wished_for_becomes_calls_in_the_order_of_the_text(text: str, calls: list[Any]) -> None:
    _, reply = await _stream(_says(text))

    assert [(request.name, json.loads(request.arguments)) for request in reply.tool_requests] == calls
    assert reply.finish_reason == ("tool_calls" if calls else "stop")


async def test_a_tool_that_is_not_offered_is_not_called() -> None:
    _, reply = await _stream(_says("what time is it, where am I"), tools={"get_location"})
    assert [request.name for request in reply.tool_requests] == ["get_location"]

    _, reply = await _stream(_says("what time is it"), tools=set())
    assert text_of(reply.content) == "You said: what time is it"


def test_after_the_results_it_answers_from_them() -> None:
    calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}}
        for name in ("current_time", "send_email")
    ]
    messages = [
        _says("what time is it, email ada@example.org: hi"),
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "current_time", "content": "noon"},
        {"role": "tool", "tool_call_id": "send_email", "content": [{"type": "text", "text": "rejected: too early."}]},
    ]

    assert answer(messages, {*ALL}) == ("It is noon.\n\nAbout the email: rejected: too early.", [])
    steered = answer([*messages, _says("where am I")], {*ALL})
    assert steered == ("It is noon.\n\nAbout the email: rejected: too early.\n\nOne moment: get_location.", [LOCATION])


def test_what_was_asked_in_a_cancelled_turn_is_let_be() -> None:
    cancelled = _says("[The turn was cancelled before its reply was finished.]")

    assert answer([_says("what time is it"), cancelled, _says("hi")], {*ALL}) == ("You said: hi", [])


def test_a_summary_says_how_what_people_said_began_and_goes_on_from_the_one_before() -> None:
    told = "<previous-summary>\n## Critical context\n- hello\n</previous-summary>\n\n<conversation>\n"
    told += "User: one two three four five six seven eight nine\n\nAssistant: You said so.\n</conversation>"

    said, calls = answer([{"role": "system", "content": INSTRUCTIONS}, _says(told)], {*ALL})

    assert (said, calls) == ("## Critical context\n- hello\n- one two three four five six seven eight", [])


class Named:
    """A model that says who it is."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelReply, None]:
        yield Delta("text", f"{self._name} for {request.model}")

    async def window_of(self, model: str) -> int | None:
        return 8_192


async def test_the_router_sends_only_the_name_demo_to_the_demo_model() -> None:
    router = ModelRouter(demo=Named("demo"), litellm=Named("litellm"))

    for model, adapter in (("demo", "demo"), ("openai/demo", "litellm")):
        said = [item async for item in router.stream(ModelRequest(model, [_says("hi")]))]
        assert said == [Delta("text", f"{adapter} for {model}")]
    assert [await router.window_of(model) for model in ("demo", "openai/demo")] == [None, 8_192]


def test_it_does_not_answer_what_hooks_add() -> None:
    messages = [_says("what time is it"), context_message("Be brief; ask me something.")]
    assert answer(messages, {*ALL}) == ("One moment: current_time.", [TIME])
