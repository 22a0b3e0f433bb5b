"""A real model behind a real server: what no script can promise."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from commands.agent.model import Delta, ModelRequest
from domain.parts import text_of
from infra.litellm_model import LiteLLMModel
from tests.support import agent_tools
from tests.support.long_conversations import compacted, summaries
from tests.support.model_server import ModelServer
from tests.support.model_streams import failure_of, reply_of
from tests.support.real_model import MODEL
from tests.support.slack import PATIENCE_S
from tests.support.system import of_type, system_over

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.real_model

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASKED = {"role": "user", "content": "What is the weather in Paris? Use the tool."}
EXACT = {"temperature": 0, "seed": 1, "max_tokens": 60}


@pytest.fixture
async def real_model(real_model_server: str) -> AsyncIterator[LiteLLMModel]:
    model = LiteLLMModel(api_base=real_model_server, api_key="none")
    yield model
    await model.close()


async def test_a_real_model_streams_its_words(real_model: LiteLLMModel) -> None:
    asked = ModelRequest(MODEL, [{"role": "user", "content": "Tell me about the sea."}], params=EXACT)

    deltas, reply = await reply_of(real_model, asked)

    assert len(deltas) > 5
    assert text_of(reply.content) == "".join(delta.text for delta in deltas)
    assert reply.finish_reason in ("stop", "length")
    assert reply.usage is not None
    assert reply.usage.input_tokens > 5
    assert 5 < reply.usage.output_tokens <= 60


async def test_a_real_model_calls_a_tool_and_speaks_of_its_result(real_model: LiteLLMModel) -> None:
    _, reply = await reply_of(real_model, ModelRequest(MODEL, [ASKED], [WEATHER], EXACT))

    [requested] = reply.tool_requests
    assert (requested.name, json.loads(requested.arguments)) == ("get_weather", {"city": "Paris"})

    function = {"name": requested.name, "arguments": requested.arguments}
    proposed = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": function}],
    }
    result = {"role": "tool", "tool_call_id": "c", "content": "sunny, 24 degrees"}
    _, answer = await reply_of(real_model, ModelRequest(MODEL, [ASKED, proposed, result], params=EXACT))
    assert any(word in text_of(answer.content) for word in ("sunny", "24", "Paris"))


async def test_a_real_model_that_nobody_listens_to_any_more_stops_and_answers_the_next(
    real_model: LiteLLMModel, real_model_server: str
) -> None:
    long = ModelRequest(MODEL, [{"role": "user", "content": "Count to a million."}], params={"max_tokens": 3_000})
    async with aclosing(real_model.stream(long)) as stream:
        assert isinstance(await anext(stream), Delta)

    async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as session:
        while (slot := await only_slot(session, real_model_server))["is_processing"]:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)
    assert slot["next_token"][0]["has_next_token"], "it did not come to its end"
    await reply_of(real_model, ModelRequest(MODEL, [ASKED], params={"max_tokens": 5}))


async def only_slot(session: aiohttp.ClientSession, server: str) -> dict[str, Any]:
    """Return what the server says of the one reply that it writes at a time."""
    async with session.get(server.removesuffix("/v1") + "/slots") as response:
        [slot] = await response.json()
        return dict(slot)


async def test_a_real_model_refuses_what_is_longer_than_its_window(real_model: LiteLLMModel) -> None:
    error = await failure_of(real_model, ModelRequest(MODEL, [{"role": "user", "content": "word " * 6_000}]))

    assert (error.reason, error.retryable) == ("context_window", False)


async def test_a_whole_conversation_with_a_real_model_streams_runs_a_tool_and_is_shown(
    database_url: str, real_model_server: str
) -> None:
    agent_tools.forget()
    server = ModelServer(url=real_model_server)
    async with system_over(database_url, server, model=MODEL) as system:
        conversation = await system.start(model_params=EXACT | {"max_tokens": 1_000}, tools=[])
        live = ""
        async with system.session.get(f"{system.url}{conversation.path}/stream") as stream:
            await conversation.say("Tell me about the sea in two sentences.")
            name = b""
            async for line in stream.content:
                if line.startswith(b"event: "):
                    name = line[7:].strip()
                elif line.startswith(b"data: ") and name in (b"partial", b"delta"):
                    said = json.loads(line[6:])
                    if said["kind"] == "text":
                        live = said["text"] if name == b"partial" else live + said["text"]
                if name == b"turn_ended":
                    break
        events = await conversation.turn_ends()
        (reply,) = of_type(events, "assistant_msg")
        assert len(live) > 20
        assert reply["content"][0]["text"].startswith(live[:20])
        assert reply["usage"]["output_tokens"] > 5

        weather = await system.start(model_params=EXACT, tools=["get_weather"], max_steps=2)
        await weather.say("What is the weather in Paris? Use the tool.")
        events = await weather.turn_ends()
        ids = [one["tool_call_id"] for one in of_type(events, "tool_call")]
        assert [run["args"] for run in agent_tools.runs][:1] == [{"city": "Paris"}]
        assert [result["tool_call_id"] for result in of_type(events, "tool_result")] == ids
        kinds = [row["content_type"] for row in (await weather.shown("messages"))["items"]]
        assert kinds[0] == "text"
        assert "tool_call" in kinds
        assert "tool_result" in kinds


async def test_a_real_model_summarises_a_long_conversation_and_goes_on_with_the_summary(
    database_url: str, real_model_server: str
) -> None:
    server = ModelServer(url=real_model_server)
    async with system_over(database_url, server, model=MODEL) as system:
        compaction = {"budget_tokens": 600, "keep_recent_tokens": 100}
        conversation = await system.start(model_params=EXACT | {"max_tokens": 20}, tools=[], compaction=compaction)
        story = (
            "My name is Ada and I plan a trip to Rome in May. "
            + "I like old churches, good coffee and long walks. " * 12
        )
        for n in range(4):
            await conversation.say(f"{story} What do you think of day {n + 1}?")
            events = await conversation.turn_ends(n + 1)
        assert any(ended.get("compact") for ended in of_type(events, "turn_ended"))
        await compacted(conversation, database_url)
        made = await summaries(conversation)
        assert all(summary["usage"]["output_tokens"] > 5 for summary in made)
        assert made[-1]["content"]
        assert await conversation.events() == events, "C1"
        settings = {"model_params": EXACT | {"max_tokens": 1_000}}
        async with system.session.patch(system.url + conversation.path, json={"settings": settings}) as answer:
            assert answer.status == 200
        await conversation.say("Tell me about the sea in two sentences.")
        events = await conversation.turn_ends(5)
        assert of_type(events, "turn_started")[-1]["summary_to_seq"] == made[-1]["to_seq"]
        assert of_type(events, "turn_ended")[-1]["outcome"] == "completed"
        reply = of_type(events, "assistant_msg")[-1]
        assert reply["usage"]["input_tokens"] < 600, "it read the summary instead of what it stands for"
        used = (await conversation.shown("usage"))["items"]
        assert {item["purpose"] for item in used} == {"turn", "compaction"}
        print(
            f"{len(made)} summaries, the last of {len(made[-1]['content'])} characters: {made[-1]['content'][:200]!r}"
        )
