"""A provider whose own format LiteLLM translates: thinking with signatures, hosted tools, usage in two parts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from commands.agent.model import Delta, ToolRequest
from domain.parts import Part, text_part
from infra.litellm_model import LiteLLMModel
from tests.support.model_script import Step, drop, says
from tests.support.model_streams import LOOK, failure_of, reply_of, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.model_server import ModelServer

MODEL = "anthropic/claude-sonnet-4-5"
USAGE = {
    "input_tokens": 100,
    "cache_read_input_tokens": 40,
    "cache_creation_input_tokens": 0,
    "output_tokens": 1,
}
MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "claude", "content": [], "usage": USAGE}


def _event(type: str, **fields: Any) -> Step:
    return Step(raw=f"event: {type}\ndata: {json.dumps({'type': type, **fields})}\n\n")


def _block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[Step]:
    return [
        _event("content_block_start", index=index, content_block=start),
        *(_event("content_block_delta", index=index, delta=delta) for delta in deltas),
        _event("content_block_stop", index=index),
    ]


START = _event("message_start", message=MESSAGE)
HELLO = _block(2, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hello"})


@pytest.fixture
async def anthropic(model_server: ModelServer) -> AsyncIterator[LiteLLMModel]:
    model = LiteLLMModel(api_base=model_server.url.removesuffix("/v1"), api_key="k")
    yield model
    await model.close()


async def test_thinking_keeps_its_signature_and_hosted_tools_are_no_calls(
    anthropic: LiteLLMModel, model_server: ModelServer
) -> None:
    thinking = _block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Let me "},
        {"type": "thinking_delta", "thinking": "see."},
        {"type": "signature_delta", "signature": "SIGNED"},
    )
    redacted = _block(1, {"type": "redacted_thinking", "data": "SEALED"})
    searched = _block(
        3,
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"query": "x"}'},
    )
    called = _block(
        4,
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"n":'},
        {"type": "input_json_delta", "partial_json": " 1}"},
    )
    end = [
        _event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 50}),
        _event("message_stop"),
    ]
    model_server.expect(says(START, *thinking, *redacted, *HELLO, *searched, *called, *end))

    deltas, reply = await reply_of(anthropic, request(model=MODEL, tools=[LOOK]))

    assert deltas == [Delta("thinking", "Let me "), Delta("thinking", "see."), Delta("text", "Hello")]
    assert reply.content == [
        Part(type="thinking", text="Let me see.", provider_data={"type": "thinking", "signature": "SIGNED"}),
        Part(type="thinking", text="", provider_data={"type": "redacted_thinking", "data": "SEALED"}),
        text_part("Hello"),
        Part(
            type="hosted_tool",
            data={"name": "web_search", "arguments": '{"query": "x"}'},
            provider_data={"id": "srvtoolu_1"},
        ),
    ]
    assert reply.tool_requests == (ToolRequest("toolu_1", "look", '{"n": 1}'),)
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cached_tokens) == (140, 50, 40)
    assert reply.usage.cost_usd == pytest.approx((100 * 3 + 40 * 0.3 + 50 * 15) / 1e6)


async def test_c7_a_broken_stream_says_what_it_cost_until_then(
    anthropic: LiteLLMModel, model_server: ModelServer
) -> None:
    model_server.expect(says(START, *HELLO, drop()))

    error = await failure_of(anthropic, request(model=MODEL))

    assert (error.reason, error.retryable) == ("unavailable", True)
    assert error.usage is not None
    assert (error.usage.input_tokens, error.usage.output_tokens) == (140, 1)
