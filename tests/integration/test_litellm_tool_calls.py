"""Tool calls as providers really stream them, through the LiteLLM adapter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from commands.agent.model import ToolRequest
from tests.support.model_script import Step, call, calls, fragment, says
from tests.support.model_streams import LOOK, reply_of, request

if TYPE_CHECKING:
    from infra.litellm_model import LiteLLMModel
    from tests.support.model_server import ModelServer

ONE, TWO = '{"n": 1}', '{"n": 2}'


def _look(provider_id: str | None, arguments: str, name: str = "look") -> ToolRequest:
    return ToolRequest(provider_id, name, arguments)


@pytest.mark.parametrize(
    ("steps", "requests"),
    [
        pytest.param(
            [calls(call("look", ONE, id="a", index=0)), calls(call("look", TWO, id="b", index=1))],
            [_look("a", ONE), _look("b", TWO)],
            id="as-specified",
        ),
        pytest.param(
            [
                calls(call("look", "", id="a", index=0)),
                calls(call("find", "", id="b", index=1)),
                calls(fragment('{"n"', index=0)),
                calls(fragment('{"n": ', index=1), fragment(": 1}", index=0)),
                calls(fragment("2}", index=1)),
            ],
            [_look("a", ONE), _look("b", TWO, "find")],
            id="interleaved-fragments",
        ),
        pytest.param(
            [calls(call("look", ONE, id="call_0", index=0), call("look", TWO, id="call_0", index=1))],
            [_look("call_0", ONE), _look("call_0", TWO)],
            id="one-id-for-all",
        ),
        pytest.param(
            [calls(call("look", ONE, id="a", index=0)), calls(call("look", TWO, id="b", index=0))],
            [_look("a", ONE), _look("b", TWO)],
            id="one-index-for-all",
        ),
        pytest.param(
            [calls(call("look", ONE, id="call_0", index=0)), calls(call("look", TWO, id="call_0", index=0))],
            [_look("call_0", ONE), _look("call_0", TWO)],
            id="one-id-and-one-index-for-all",
        ),
        pytest.param(
            [calls(call("look", "", id="a", index=0), call("look", "", id="a", index=0))],
            [_look("a", ""), _look("a", "")],
            id="one-id-and-one-index-in-one-chunk",
        ),
        pytest.param(
            [calls(call("look", ONE, id=None, index=None)), calls(call("look", TWO, id=None, index=None))],
            [_look(None, ONE), _look(None, TWO)],
            id="no-id-and-no-index",
        ),
        pytest.param(
            [calls(call("look", ONE, id="", index=0)), calls(call("look", TWO, id="", index=0))],
            [_look(None, ONE), _look(None, TWO)],
            id="empty-ids",
        ),
        pytest.param(
            [calls(call("look", '{"n"', id="a")), calls(call("look", ": 1}", id="a"))],
            [_look("a", ONE)],
            id="id-and-name-repeated-in-every-fragment",
        ),
        pytest.param(
            [calls(call("look", '{"n"', id="a")), calls({**fragment(": 1}"), "id": "b"})],
            [_look("a", ONE)],
            id="another-id-in-a-later-fragment",
        ),
        pytest.param(
            [calls(call("look", '{"n": 1', id="a"))], [_look("a", '{"n": 1')], id="arguments-that-are-no-json"
        ),
        pytest.param([calls(call("look", "", id="a"))], [_look("a", "")], id="no-arguments"),
    ],
)
async def test_t12_ids_and_indexes_of_a_provider_never_merge_two_calls(
    steps: list[Step], requests: list[ToolRequest], litellm_model: LiteLLMModel, model_server: ModelServer
) -> None:
    model_server.expect(says("I look.", *steps))

    _, reply = await reply_of(litellm_model, request(tools=[LOOK]))

    assert list(reply.tool_requests) == requests
    assert [(part.type, part.text) for part in reply.content] == [("text", "I look.")]
    assert reply.finish_reason == "tool_calls"


async def test_t12_the_same_id_in_every_turn_stays_with_its_reply(
    litellm_model: LiteLLMModel, model_server: ModelServer
) -> None:
    model_server.expect(says(calls(call("look", ONE))), says(calls(call("look", TWO))))

    replies = [await reply_of(litellm_model, request(tools=[LOOK])) for _ in range(2)]

    assert [reply.tool_requests for _, reply in replies] == [(_look("call_0", ONE),), (_look("call_0", TWO),)]
