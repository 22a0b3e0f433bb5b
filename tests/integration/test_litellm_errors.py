"""What goes wrong with a model, seen through the LiteLLM adapter."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import pytest

from commands.agent.model import Delta, ModelError
from commands.agent.model_call import call_model
from commands.agent.spending import Spending
from domain.parts import text_of
from infra.litellm_model import LiteLLMModel
from tests.support.model_script import Step, context_window_exceeded, drop, fails, gate, hang, says
from tests.support.model_streams import failure_of, reply_of, request

if TYPE_CHECKING:
    from tests.support.model_script import Scripted
    from tests.support.model_server import ModelServer

INVALID = {"type": "invalid_request_error"}
OVERLOADED = Step(raw='data: {"error": {"message": "overloaded", "type": "server_error"}}\n\n')


@pytest.mark.parametrize(
    ("answer", "reason", "retryable"),
    [
        (fails(429), "rate_limited", True),
        (fails(500), "unavailable", True),
        (fails(500, **INVALID), "unavailable", True),
        (fails(503), "unavailable", True),
        (fails(529), "unavailable", True),
        (fails(401), "auth", False),
        (fails(401, **INVALID), "auth", False),
        (fails(403), "auth", False),
        (fails(400, **INVALID), "bad_request", False),
        (fails(404, **INVALID), "bad_request", False),
        (fails(413), "bad_request", False),
        (fails(422), "bad_request", False),
        (context_window_exceeded(), "context_window", False),
        (fails(400, type="exceed_context_size_error"), "context_window", False),
        (says("a", drop()), "unavailable", True),
        (says(drop()), "unavailable", True),
        (says("a", OVERLOADED), "unavailable", True),
        (says(OVERLOADED), "unavailable", True),
        (says("a", Step(raw="data: {rubbish\n\n")), "unavailable", True),
        (says("a", finish=None), "truncated", False),
        (says(finish=None), "truncated", False),
    ],
)
async def test_t9_each_failure_has_its_reason(
    answer: Scripted, reason: str, retryable: bool, litellm_model: LiteLLMModel, model_server: ModelServer
) -> None:
    model_server.expect(answer)

    error = await failure_of(litellm_model)

    assert (error.reason, error.retryable, error.retry_after_s) == (reason, retryable, None)
    assert len(model_server.received) == 1


async def test_t9_a_connection_that_is_refused_is_retryable() -> None:
    model = LiteLLMModel(api_base="http://127.0.0.1:1/v1", api_key="k")
    error = await failure_of(model)
    await model.close()

    assert (error.reason, error.retryable) == ("unavailable", True)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("0.5", 0.5), ("3600", 3600.0), ("-1", 0.0), ("soon", None), ("nan", None)],
)
async def test_t9_the_time_that_a_server_asks_to_wait_is_handed_on(
    header: str, seconds: float | None, litellm_model: LiteLLMModel, model_server: ModelServer
) -> None:
    model_server.expect(fails(429, retry_after=header), fails(503, retry_after=header))

    assert (await failure_of(litellm_model)).retry_after_s == seconds
    assert (await failure_of(litellm_model)).retry_after_s == seconds


async def test_t9_a_date_to_wait_for_counts_from_now(litellm_model: LiteLLMModel, model_server: ModelServer) -> None:
    began = datetime.now(UTC)
    model_server.expect(fails(429, retry_after=format_datetime(began + timedelta(seconds=300), usegmt=True)))

    seconds = (await failure_of(litellm_model)).retry_after_s
    assert seconds is not None
    assert 299 - (datetime.now(UTC) - began).total_seconds() <= seconds <= 300


async def test_t9_a_missing_usage_means_truncated_only_from_a_model_that_has_sent_one(
    litellm_model: LiteLLMModel, model_server: ModelServer
) -> None:
    model_server.expect(says("a", usage=None), says("b"), says("c", usage=None), says("d", usage=None))

    _, never_sent = await reply_of(litellm_model)
    _, sent = await reply_of(litellm_model)
    assert (never_sent.usage, sent.usage is not None) == (None, True)
    assert (await failure_of(litellm_model)).reason == "truncated"
    _, other = await reply_of(litellm_model, request(model="openai/other"))
    assert text_of(other.content) == "d"


async def test_t9_a_silent_server_is_given_up_after_the_longest_gap(
    litellm_model: LiteLLMModel, model_server: ModelServer
) -> None:
    model_server.expect(says("a", gate("go"), "b", hang()))
    asked = request()

    async with aclosing(litellm_model.stream(asked)) as stream:
        await anext(stream)
        object.__setattr__(asked, "max_gap_s", 0.2)  # not before: nobody knows how long a first word takes here
        model_server.open("go")
        with pytest.raises(ModelError) as raised:
            [item async for item in stream]

    error = raised.value
    assert (error.reason, error.retryable, str(error)) == (
        "unavailable",
        True,
        "the model did not send anything for 0.2 s",
    )
    await model_server.closed(0)


async def test_t9_a_call_that_takes_too_long_as_a_whole_is_not_tried_again(
    litellm_model: LiteLLMModel, model_server: ModelServer
) -> None:
    model_server.expect(says("a", hang()))

    error = await failure_of(litellm_model, request(max_total_s=0.2))

    assert (error.reason, error.retryable) == ("unavailable", False)
    if model_server.received:  # in so short a time it may not have come there
        await model_server.closed(0)


async def test_t9_a_broken_stream_and_a_5xx_are_retried_and_only_the_whole_reply_counts(
    litellm_model: LiteLLMModel, model_server: ModelServer
) -> None:
    model_server.expect(says("bro", drop()), fails(500), says("whole"))
    seen: list[Any] = []

    reply = await call_model(
        ["openai/scripted"],
        litellm_model,
        lambda model: request(model=model),
        Spending(),
        on_delta=seen.append,
        on_restart=seen.append,
        sleep=lambda _: asyncio.sleep(0),
    )

    assert seen == [Delta("text", "bro"), 2, 3, Delta("text", "whole")]
    assert text_of(reply.content) == "whole"
    assert len(model_server.received) == 3


@pytest.mark.parametrize(
    ("model", "reason", "says_what"), [("nobody-knows-me", "bad_request", "openai/NAME"), ("openai/x", "auth", "key")]
)
async def test_a_wrong_configuration_is_told_in_words(
    model: str, reason: str, says_what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    adapter = LiteLLMModel()
    error = await failure_of(adapter, request(model=model))
    await adapter.close()

    assert (error.reason, error.retryable) == (reason, False)
    assert says_what in str(error)


async def test_l10_neither_error_nor_log_repeats_a_key_or_what_was_said(
    litellm_model: LiteLLMModel, model_server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told = {"message": "wrong key sk-test-secret in 'my words'", "code": "my words, as a code"}
    model_server.expect(fails(400, **told), fails(401, **told), says("a", OVERLOADED), says("my words"))

    errors = [await failure_of(litellm_model, request("my words")) for _ in range(3)]
    await reply_of(litellm_model, request("my words"))

    for text in [*map(str, errors), caplog.text]:
        assert "sk-test-secret" not in text
        assert "my words" not in text
    assert all(error.__cause__ is None and error.__context__ is None for error in errors)
