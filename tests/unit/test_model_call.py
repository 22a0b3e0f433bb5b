"""The retries and fallbacks of model calls."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from commands.agent.model import Delta, ModelError, ModelReply, ModelRequest, ToolRequest
from commands.agent.model_call import call_model
from commands.agent.spending import Spending
from domain.parts import text_part
from domain.usage import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from commands.agent.model import FailureReason

UNAVAILABLE = ModelError("unavailable", "503", retryable=True)


def _reply(model: str = "m", usage: Usage | None = None) -> ModelReply:
    return ModelReply([text_part("done")], (), model, "stop", usage, 1)


def _limited(retry_after_s: float | None) -> ModelError:
    return ModelError("rate_limited", "429", retryable=True, retry_after_s=retry_after_s)


@dataclass
class Scripted:
    """A model whose tries go as scripted, and what its caller did."""

    tries: list[ModelReply | ModelError]
    asked: list[str] = field(default_factory=list)
    deltas: list[str] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    spending: Spending = field(default_factory=Spending)
    closed: int = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelReply, None]:
        self.asked.append(request.model)
        outcome = self.tries.pop(0)
        try:
            yield Delta("text", "par")
            if isinstance(outcome, ModelError):
                raise outcome
            yield outcome
        finally:
            self.closed += 1

    async def call(self, *models: str, jitter: float = 0.5) -> ModelReply:
        return await call_model(
            models or ("m",),
            self,
            lambda name: ModelRequest(name, [{"role": "user", "content": "hi"}]),
            self.spending,
            on_delta=lambda delta: self.deltas.append(delta.text),
            on_restart=lambda number: self.deltas.append(f"<{number}>"),
            sleep=self._sleep,
            jitter=lambda: jitter,
        )

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


async def test_a_reply_at_once_needs_no_second_try() -> None:
    model = Scripted([_reply()])

    assert await model.call() == _reply()
    assert (model.deltas, model.pauses, model.closed) == (["par"], [], 1)


async def test_t9_a_retryable_failure_is_tried_twice_more_and_each_restart_clears_the_partial() -> None:
    model = Scripted([UNAVAILABLE, UNAVAILABLE, _reply()])

    assert (await model.call()).content == [text_part("done")]
    assert model.deltas == ["par", "<2>", "par", "<3>", "par"]
    assert model.pauses == [0.5, 1.0]
    assert model.closed == 3


async def test_t9_the_third_failure_is_raised() -> None:
    last = ModelError("unavailable", "the last", retryable=True)
    model = Scripted([UNAVAILABLE, UNAVAILABLE, last])

    with pytest.raises(ModelError, match="the last"):
        await model.call()
    assert model.deltas[-1] == "par"


@pytest.mark.parametrize("reason", ["auth", "bad_request", "context_window", "truncated"])
async def test_t9_other_failures_are_not_retried(reason: FailureReason) -> None:
    model = Scripted([ModelError(reason, "no", retryable=False)])

    with pytest.raises(ModelError) as raised:
        await model.call()
    assert (raised.value.reason, model.asked, model.pauses) == (reason, ["m"], [])


@pytest.mark.parametrize(
    ("retry_after_s", "jitter", "pause"),
    [(7.0, 0.0, 7.0), (7.0, 0.9, 7.45), (60.0, 0.0, 60.0), (61.0, 0.0, 0.25), (0.0, 0.0, 0.0), (None, 0.9, 0.7)],
)
async def test_t9_retry_after_is_honoured_up_to_a_minute(
    retry_after_s: float | None, jitter: float, pause: float
) -> None:
    model = Scripted([_limited(retry_after_s), _reply()])

    await model.call(jitter=jitter)

    assert model.pauses == pytest.approx([pause])


async def test_a_fallback_is_asked_when_the_tries_are_used_up() -> None:
    model = Scripted([UNAVAILABLE, UNAVAILABLE, UNAVAILABLE, _reply("spare")])

    assert (await model.call("m", "spare")).model == "spare"
    assert model.asked == ["m", "m", "m", "spare"]
    assert model.deltas[-2:] == ["<4>", "par"]


@pytest.mark.parametrize("reason", ["auth", "truncated"])
async def test_a_fallback_is_asked_at_once_when_a_retry_cannot_help(reason: FailureReason) -> None:
    model = Scripted([ModelError(reason, "no", retryable=False), _reply("spare")])

    assert (await model.call("m", "m", "spare")).model == "spare"
    assert (model.asked, model.pauses) == (["m", "spare"], [])


@pytest.mark.parametrize("reason", ["bad_request", "context_window"])
async def test_no_fallback_is_asked_for_a_fault_of_the_request(reason: FailureReason) -> None:
    model = Scripted([ModelError(reason, "no", retryable=False)])

    with pytest.raises(ModelError) as raised:
        await model.call("m", "spare")
    assert (raised.value.reason, model.asked) == (reason, ["m"])


async def test_t9_a_reply_that_reached_its_limit_of_tokens_is_truncated_and_paid_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = (ToolRequest("call_0", "transfer", '{"amount": 1'),)
    cut = replace(_reply(usage=Usage(model="m", output_tokens=60)), finish_reason="length", tool_requests=calls)

    model = Scripted([cut])
    with pytest.raises(ModelError, match="max_tokens") as raised:
        await model.call()
    assert (raised.value.reason, raised.value.retryable) == ("truncated", False)
    assert model.spending.all == [Usage(model="m", output_tokens=60)]
    assert "truncated" in caplog.text

    assert (await Scripted([cut, _reply("spare")]).call("m", "spare")).model == "spare"


def _broken() -> ModelError:
    spent = Usage(model="m", input_tokens=100, output_tokens=3, cost_usd=0.5)
    return ModelError("unavailable", "broken", retryable=True, usage=spent)


async def test_c7_the_usage_of_failed_tries_is_counted_whatever_becomes_of_the_call() -> None:
    answered = Scripted([_broken(), _reply(usage=Usage(model="m", input_tokens=100, output_tokens=9))])
    await answered.call()
    assert answered.spending.of_model == Usage(model="m", calls=2, input_tokens=200, output_tokens=12, cost_usd=0.5)

    failed = Scripted([_broken(), _broken(), _broken()])
    with pytest.raises(ModelError):
        await failed.call()
    assert failed.spending.all == [Usage(model="m", calls=3, input_tokens=300, output_tokens=9, cost_usd=1.5)]


async def test_c7_each_model_has_its_own_sum() -> None:
    model = Scripted([_broken(), _broken(), _broken(), _reply("spare", Usage(model="spare", output_tokens=7))])

    await model.call("m", "spare")

    assert model.spending.of_model == Usage(model="spare", output_tokens=7)
    assert model.spending.of_others == [
        Usage(model="m", calls=3, input_tokens=300, output_tokens=9, cost_usd=1.5),
    ]


async def test_c7_what_a_stopped_try_had_reported_is_known() -> None:
    told = asyncio.Event()

    class Speaking:
        async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Usage | ModelReply, None]:
            yield Usage(model="m", input_tokens=100)
            yield Usage(model="m", input_tokens=100, output_tokens=1)
            told.set()
            await asyncio.Event().wait()

    spending = Spending()
    call = asyncio.create_task(
        call_model(["m"], Speaking(), lambda n: ModelRequest(n, []), spending, on_delta=print, on_restart=print)
    )
    await told.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert spending.all == [Usage(model="m", input_tokens=100, output_tokens=1)]
