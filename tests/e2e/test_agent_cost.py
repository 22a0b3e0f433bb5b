"""What turns cost, from outside: usage and prices of every call that a provider reported, and budgets."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.model_script import Rule, Step, call, calls, drop, fails, hang, says
from tests.support.slack import PATIENCE_S
from tests.support.system import Conversation, of_type, system_over, types

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer
    from tests.support.system import System

DEAR, CHEAP = "openai/gpt-4o", "openai/gpt-4o-mini"
PRICES = {DEAR: (2.5e-6, 10e-6), CHEAP: (0.15e-6, 0.6e-6)}
TOTALS = ("calls", "input_tokens", "output_tokens")
ADD = calls(call("add", {"a": 1, "b": 2}))


def told(read: int, written: int) -> dict[str, Any]:
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def tells(read: int, written: int) -> Step:
    """Report usage in the middle of a stream."""
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}
    return Step(raw=f"data: {json.dumps(chunk | {'usage': told(read, written)})}\n\n")


def cost(model: str, read: int, written: int) -> Any:
    reading, writing = PRICES[model]
    return pytest.approx(read * reading + written * writing)


async def test_c7_each_turn_and_model_has_its_calls_tokens_and_cost(system: System, model_server: ModelServer) -> None:
    model_server.expect(
        says(ADD, usage=told(100, 10)),
        says("Three.", usage=told(120, 5)),
        says("So ", drop()),
        says("Hi ", tells(50, 1), drop()),
        fails(401),
        says("From the spare one.", usage=told(60, 6)),
    )
    conversation = await system.start("Add", model=DEAR, fallback_models=[CHEAP])
    await conversation.turn_ends()
    await conversation.say("Again")
    await conversation.turn_ends(2)

    usage = await conversation.shown("usage")

    first, failed, spare = sorted(usage["items"], key=lambda item: (item["turn"], item["model"]))
    assert [(item["purpose"], item["turn"], item["model"]) for item in (first, failed, spare)] == [
        ("turn", 1, DEAR), ("turn", 2, DEAR), ("turn", 2, CHEAP),
    ]  # fmt: skip
    assert [tuple(item[name] for name in TOTALS) for item in (first, failed, spare)] == [
        (2, 220, 15), (1, 50, 1), (1, 60, 6),
    ]  # fmt: skip
    assert (first["cost_usd"], failed["cost_usd"]) == (cost(DEAR, 220, 15), cost(DEAR, 50, 1))
    assert spare["cost_usd"] == cost(CHEAP, 60, 6)
    assert usage["total"]["cost_usd"] == pytest.approx(sum(item["cost_usd"] for item in usage["items"]))
    shown = await conversation.shown()
    assert shown["usage"] == usage["total"]


async def test_c7_what_a_cancelled_reply_had_cost_is_counted(system: System, model_server: ModelServer) -> None:
    model_server.expect(says("Once ", tells(40, 1), "upon ", "a time", hang()))
    conversation = await system.start("Tell", model=DEAR)
    await _has_said(conversation, "a time")  # a chunk is shown before the usage that came with it is known

    await system.post(f"{conversation.path}/cancel", {}, status=202)
    events = await conversation.until(lambda seen: "usage_reported" in types(seen))

    (ended,), (late,) = of_type(events, "turn_ended"), of_type(events, "usage_reported")
    assert (ended["outcome"], ended["partial_text"]) == ("cancelled", "Once upon a time")
    assert (late["purpose"], late["turn"]) == ("turn", 1)
    (item,) = (await conversation.shown("usage"))["items"]
    assert (item["turn"], item["input_tokens"], item["output_tokens"]) == (1, 40, 1)
    assert item["cost_usd"] == cost(DEAR, 40, 1)

    await conversation.say("And now?")
    assert of_type(await conversation.turn_ends(2), "turn_ended")[1]["outcome"] == "completed"


async def test_c7_a_failed_call_is_paid_for_too(system: System, model_server: ModelServer) -> None:
    model_server.expect(*[says("Hi ", tells(50, 2), drop())] * 3)
    conversation = await system.start("Hello", model=DEAR)
    (ended,) = of_type(await conversation.turn_ends(), "turn_ended")

    assert (ended["outcome"], ended["reason"]) == ("failed", "unavailable")
    assert (await conversation.shown("usage"))["total"] == {
        "calls": 3, "input_tokens": 150, "output_tokens": 6, "cached_tokens": 0, "cost_usd": cost(DEAR, 150, 6),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "next_turn", "detail"),
    [
        ({"max_tokens_per_turn": 200}, "completed", "200 of 200 tokens of this turn"),
        ({"max_cost_usd": 0.0005}, "failed", "0.00065 of 0.0005 USD of this conversation"),
    ],
)
async def test_a_turn_that_would_go_on_beyond_its_budget_fails_before_the_next_call(
    limit: dict[str, float], next_turn: str, detail: str, system: System, model_server: ModelServer
) -> None:
    model_server.rule(Rule(answer=says(ADD, usage=told(90, 10)), last_text="Add"))
    model_server.rule(Rule(answer=says(ADD, usage=told(90, 10)), last_role="tool"))
    conversation = await system.start("Add", model=DEAR, **limit)
    events = await conversation.turn_ends()

    (ended,) = of_type(events, "turn_ended")
    assert (ended["outcome"], ended["reason"], ended["detail"]) == ("failed", "budget", detail)
    assert types(events).count("assistant_msg") == 2
    assert len(of_type(events, "tool_result")) == 2, "each call has its result"
    assert len(model_server.received) == 2
    error = (await conversation.shown("messages"))["items"][-1]
    assert (error["content_type"], error["content"]["reason"]) == ("error", "budget")
    assert error["content"]["detail"] == detail

    await conversation.say("Hello")
    ended = of_type(await conversation.turn_ends(2), "turn_ended")[1]
    assert ended["outcome"] == next_turn, "what the conversation has cost stays spent"
    assert len(model_server.received) == (3 if next_turn == "completed" else 2)

    raised = {"settings": dict.fromkeys(limit)}
    async with system.session.patch(system.url + conversation.path, json=raised) as response:
        assert response.status == 200
    await conversation.say("Hello")
    assert of_type(await conversation.turn_ends(3), "turn_ended")[2]["outcome"] == "completed"


async def test_c7_a_title_is_given_after_the_first_answer_and_counted(
    database_url: str, model_server: ModelServer
) -> None:
    model_server.rule(Rule(model="gpt-4o-mini", answer=says('"A sum"', usage=told(70, 3))))
    async with system_over(database_url, model_server, compaction_model=CHEAP) as system:
        conversation = await system.start("Add", model=DEAR)
        events = await conversation.until(lambda seen: "conversation_changed" in types(seen))
        assert events[-1]["data"]["title"] == "A sum"
        assert events[-1]["metadata"]["actor"]["kind"] == "system"

        turn, title = (await conversation.shown("usage"))["items"]
        assert (turn["purpose"], turn["turn"]) == ("turn", 1)
        assert (title["purpose"], title["turn"], title["model"]) == ("title", None, CHEAP)
        assert title["cost_usd"] == cost(CHEAP, 70, 3)
        shown = await conversation.shown()
        assert (shown["title"], shown["settings"]) == ("A sum", {"model": DEAR})
        assert shown["usage"]["calls"] == 2

        await conversation.say("Again")
        await conversation.turn_ends(2)
        named = await system.post("/v1/conversations", {"title": "Mine", "message": {"content": "Hi"}}, status=201)
        await Conversation(system, named["conversation_id"]).turn_ends()
        quiet = await system.start("Hi", titles=False)
        await quiet.turn_ends()
        assert [one.body["model"] for one in model_server.received].count("gpt-4o-mini") == 1


async def test_a_title_that_fails_harms_nothing(database_url: str, model_server: ModelServer) -> None:
    model_server.rule(Rule(model="gpt-4o-mini", answer=fails(400, type="invalid_request_error")))
    async with system_over(database_url, model_server, compaction_model=CHEAP) as system:
        conversation = await system.start("Hello")
        await conversation.turn_ends()
        await model_server.requests(2)
        await conversation.say("Again")
        events = await conversation.turn_ends(2)
        assert {"conversation_changed", "usage_reported"}.isdisjoint(types(events))
        assert [ended["outcome"] for ended in of_type(events, "turn_ended")] == ["completed"] * 2


async def test_budgets_that_allow_nothing_are_refused(system: System) -> None:
    for limit in ({"max_cost_usd": 0}, {"max_cost_usd": "1"}, {"max_tokens_per_turn": 0}):
        problem = await system.post("/v1/conversations", {"settings": limit}, status=422)
        assert next(iter(limit)) in json.dumps(problem["errors"])


async def _has_said(conversation: Conversation, text: str) -> None:
    stream = f"{conversation.system.url}{conversation.path}/stream"
    async with asyncio.timeout(PATIENCE_S), conversation.system.session.get(stream) as response:
        async for line in response.content:
            if line.startswith(b"data: ") and text in str(json.loads(line[6:]).get("text")):
                return
    raise AssertionError("the stream ended")
