"""The LiteLLM adapter against a scripted model server, over real HTTP."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from commands.agent.model import Delta, ModelError, ModelReply
from domain.parts import text_part
from domain.usage import Usage
from tests.support.model_script import gate, hang, says, thinks
from tests.support.model_streams import LOOK, failure_of, reply_of, request
from tests.support.slack import PATIENCE_S, SLACK_S

if TYPE_CHECKING:
    from infra.litellm_model import LiteLLMModel
    from tests.support.model_server import ModelServer


async def test_a_reply_streams_as_deltas_and_comes_whole_at_the_end(
    litellm_model: LiteLLMModel, model_server: ModelServer
) -> None:
    usage = {"prompt_tokens": 30, "completion_tokens": 4, "total_tokens": 34}
    model_server.expect(says("Hel", "lo", usage=usage | {"prompt_tokens_details": {"cached_tokens": 20}}))

    deltas, reply = await reply_of(
        litellm_model, request("hi", model="openai/gpt-4o", params={"temperature": 0.5}, tools=[LOOK])
    )

    assert deltas == [Delta("text", "Hel"), Delta("text", "lo")]
    assert reply.content == [text_part("Hello")]
    assert (reply.model, reply.finish_reason, reply.tool_requests) == ("openai/gpt-4o", "stop", ())
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cached_tokens) == (30, 4, 20)
    assert reply.usage.cost_usd == pytest.approx((10 * 2.5 + 20 * 1.25 + 4 * 10) / 1e6)
    [received] = model_server.received
    assert received.headers["Authorization"] == "Bearer sk-test-secret"
    assert received.body == {
        "model": "gpt-4o",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [LOOK],
        "temperature": 0.5,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_a_model_without_a_price_costs_nobody_knows_what(
    litellm_model: LiteLLMModel, model_server: ModelServer
) -> None:
    model_server.expect(says("hi"))

    _, reply = await reply_of(litellm_model)

    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.cost_usd) == (10, None)


async def test_deltas_arrive_while_the_server_still_speaks(
    litellm_model: LiteLLMModel, model_server: ModelServer
) -> None:
    model_server.expect(says("one", gate("go"), "two"))

    async with aclosing(litellm_model.stream(request())) as stream:
        assert await anext(stream) == Delta("text", "one")
        model_server.open("go")
        assert await anext(stream) == Delta("text", "two")
        assert isinstance(await anext(stream), Usage)
        assert isinstance(await anext(stream), ModelReply)


async def test_a_slow_reader_gets_everything_in_order(litellm_model: LiteLLMModel, model_server: ModelServer) -> None:
    words = [f"{number} " for number in range(2_000)]
    model_server.expect(says(*words))

    async with aclosing(litellm_model.stream(request())) as stream:
        first = await anext(stream)
        time.sleep(0.3)  # noqa: ASYNC251 - a reader's loop that is stuck is what this is about
        rest = [item async for item in stream]

    assert [item.text for item in [first, *rest] if isinstance(item, Delta)] == words
    assert isinstance(rest[-1], ModelReply)


async def test_reasoning_is_a_part_of_its_own(litellm_model: LiteLLMModel, model_server: ModelServer) -> None:
    model_server.expect(says(thinks("Let me "), thinks("see."), "Yes", thinks("Hm."), "!"))

    deltas, reply = await reply_of(litellm_model)

    assert deltas[0] == Delta("thinking", "Let me ")
    assert [(part.type, part.text) for part in reply.content] == [
        ("thinking", "Let me see."),
        ("text", "Yes"),
        ("thinking", "Hm."),
        ("text", "!"),
    ]


async def test_b5_closing_the_stream_closes_the_upstream_within_a_second(
    litellm_model: LiteLLMModel, model_server: ModelServer
) -> None:
    model_server.expect(says("one", hang()))
    stream = litellm_model.stream(request())
    await anext(stream)

    closing_at = time.monotonic()
    await stream.aclose()

    assert await model_server.closed(0) - closing_at < 1 + SLACK_S


@pytest.mark.parametrize("spoken", ["", "one"])
async def test_b5_cancelling_the_caller_closes_the_upstream_within_a_second(
    spoken: str, litellm_model: LiteLLMModel, model_server: ModelServer
) -> None:
    model_server.expect(says(spoken, hang()))
    caller = asyncio.create_task(reply_of(litellm_model))
    await model_server.requests(1)

    cancelled_at = time.monotonic()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller

    assert await model_server.closed(0) - cancelled_at < 1 + SLACK_S


async def test_closing_the_adapter_ends_its_streams_and_no_stream_can_begin(
    litellm_model: LiteLLMModel, model_server: ModelServer
) -> None:
    model_server.expect(says("one", hang()))
    stream = litellm_model.stream(request())
    await anext(stream)

    await litellm_model.close()

    with pytest.raises(ModelError, match="closed"):
        await anext(stream)
    await model_server.closed(0)
    with pytest.raises(RuntimeError, match="closed"):
        await reply_of(litellm_model)


async def test_once_warm_the_first_call_is_fast(litellm_model: LiteLLMModel) -> None:
    await litellm_model.warm()

    spent_s = time.process_time()  # a cold one takes seconds of it
    await reply_of(litellm_model, request(tools=[LOOK]))

    assert time.process_time() - spent_s < 1


async def test_a_parameter_that_reaches_into_litellm_is_refused_before_anything_is_sent(
    litellm_model: LiteLLMModel, model_server: ModelServer
) -> None:
    error = await failure_of(litellm_model, request(params={"api_base": "http://evil.example", "temperature": 1}))

    assert (error.reason, error.retryable) == ("bad_request", False)
    assert "api_base" in str(error)
    assert model_server.received == []


async def test_the_callers_messages_stay_as_they_are(litellm_model: LiteLLMModel) -> None:
    asked = request("hi", tools=[LOOK])
    before = repr(asked)

    await reply_of(litellm_model, asked)

    assert repr(asked) == before


def test_importing_the_adapter_does_not_import_litellm() -> None:
    code = "import sys, infra.litellm_model, infra.models; sys.exit('litellm' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S)
