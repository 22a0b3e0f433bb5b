"""The scripted model server in a process of its own, as tests that kill processes use it."""

from __future__ import annotations

from contextlib import aclosing

from commands.agent.model import Delta, ModelReply
from domain.parts import text_of
from infra.litellm_model import LiteLLMModel
from tests.support.model_script import Rule, gate, hang, says
from tests.support.model_streams import reply_of, request
from tests.support.remote_model_server import remote_model_server


async def test_it_is_steered_and_asked_over_http() -> None:
    async with remote_model_server() as server:
        model = LiteLLMModel(api_base=server.url, api_key="k")
        await server.rule(Rule(answer=says("sunny"), last_text="weather"), Rule(answer=says("hi", hang()), times=1))
        await server.expect(says("one ", gate("go"), "two"))

        async with aclosing(model.stream(request("first"))) as stream:
            assert await anext(stream) == Delta("text", "one ")
            await server.open("go")
            assert await anext(stream) == Delta("text", "two")
            assert isinstance([item async for item in stream][-1], ModelReply)
        _, reply = await reply_of(model, request("how is the weather?"))
        assert text_of(reply.content) == "sunny"
        async with aclosing(model.stream(request("by the other rule"))) as stream:
            await anext(stream)
        await server.closed(2)
        _, reply = await reply_of(model, request("by none"))
        assert text_of(reply.content) == "You said: by none"

        received = await server.requests(4)
        assert [one.body["messages"][-1]["content"] for one in received] == [
            "first",
            "how is the weather?",
            "by the other rule",
            "by none",
        ]
        assert [one.closed_at is not None for one in received] == [False, False, True, False]
        await server.reset()
        assert await server.requests(0) == []
        await model.close()
