"""A provider that signs its tool calls: the signature goes back with the call, to that provider only."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from commands.agent.model import ModelRequest
from domain.decisions import Reply
from domain.parts import text_of
from domain.proposals import propose
from domain.tools import Toolset
from domain.working_set import working_set
from infra.litellm_model import LiteLLMModel
from tests.support.given import NOW, OPEN_TURN, given, ran
from tests.support.model_script import Step, says
from tests.support.model_streams import LOOK, reply_of, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from domain.conversation import Conversation
    from tests.support.model_server import ModelServer

MODEL = "gemini/gemini-3-pro-preview"
SIGNATURE = "U0lHTkFUVVJF"
CALLS: list[dict[str, Any]] = [
    {"functionCall": {"name": "look", "args": {}}, "thoughtSignature": SIGNATURE},
    {"functionCall": {"name": "look", "args": {}}},
]


def _chunk(*parts: dict[str, Any], finish: str | None = None) -> Step:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    usage = {"promptTokenCount": 5, "candidatesTokenCount": 3, "totalTokenCount": 8}
    return Step(raw=f"data: {json.dumps({'candidates': [candidate], 'usageMetadata': usage})}\n\n")


@pytest.fixture
async def gemini(model_server: ModelServer) -> AsyncIterator[LiteLLMModel]:
    model = LiteLLMModel(api_base=model_server.url, api_key="k")
    yield model
    await model.close()


def look() -> str:
    """Look."""
    return "seen"


def _ends(tool_call_id: str, conversation: Conversation) -> None:
    conversation.record_result(1, 1, ran(tool_call_id), now=NOW)


async def test_the_signature_of_a_call_goes_back_to_its_provider_only(
    gemini: LiteLLMModel, model_server: ModelServer
) -> None:
    model_server.expect(*[says(_chunk(*CALLS, finish="STOP"), finish=None)] * 2)
    _, reply = await reply_of(gemini, request(model=MODEL, tools=[LOOK]))
    signed, unsigned = reply.tool_requests
    assert (signed.provider_data, unsigned.provider_data) == ({"thought_signature": SIGNATURE}, None)
    assert SIGNATURE not in str(signed.provider_id)

    calls = propose(reply.tool_requests, Toolset([look]), approval_timeout_s=None)
    recorded = Reply(1, reply.content, reply.model, reply.finish_reason, 3, calls)
    log = given(*OPEN_TURN).when(lambda c: c.record_reply(1, 1, recorded, now=NOW))
    for call in calls:
        log.when(partial(_ends, call.tool_call_id))

    messages = working_set(log.log, system_prompt=None, model=MODEL)
    await reply_of(gemini, ModelRequest(MODEL, messages, [LOOK]))
    sent = model_server.received[1].body["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in sent] == [SIGNATURE, None]
    assert SIGNATURE not in json.dumps(working_set(log.log, system_prompt=None, model="openai/gpt-5"))


@pytest.mark.parametrize(("said", "finish"), [("STOP", "stop"), ("MAX_TOKENS", "length")])
async def test_t9_a_finish_reason_that_comes_with_the_last_words_is_one(
    said: str, finish: str, gemini: LiteLLMModel, model_server: ModelServer
) -> None:
    model_server.expect(says(_chunk({"text": "Hel"}), _chunk({"text": "lo"}, finish=said), finish=None))
    _, reply = await reply_of(gemini, request(model=MODEL))
    assert (text_of(reply.content), reply.finish_reason) == ("Hello", finish)
