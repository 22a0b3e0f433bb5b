"""A whole model call: tries of one model, then of its fallbacks, until there is a reply."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import aclosing
from typing import TYPE_CHECKING

from commands.agent.model import Delta, ModelError
from domain.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from commands.agent.model import Model, ModelReply, ModelRequest
    from commands.agent.spending import Spending

logger = logging.getLogger(__name__)

TRIES = 3
"""Of each model: the first and two retries."""
FIRST_PAUSE_S = 0.5
LONGEST_HONOURED_S = 60.0
"""A server that asks for more is not waited for: the usual pause, then it may fail."""
FAULTS_OF_THE_REQUEST = ("bad_request", "context_window")
"""No other model is asked to make up for these: the caller has to see them, and cures a long context itself."""
CUT_OFF = "length"
"""The finish reason, as LiteLLM names it for every provider, of a reply that reached its limit of tokens."""


async def call_model(
    models: Sequence[str],
    model: Model,
    request_for: Callable[[str], ModelRequest],
    spending: Spending,
    *,
    on_delta: Callable[[Delta], None],
    on_restart: Callable[[int], None],
    whole: bool = True,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    jitter: Callable[[], float] = random.random,
) -> ModelReply:
    """Call the first of `models`, the others if it cannot answer, and return the reply.

    A retryable error (429, 5xx, transport, broken stream) is retried twice with jittered backoff, or after the
    seconds that the server asked for, up to 60. The next model is asked when the tries are used up, and at once after
    ``auth`` or ``truncated`` (so ends a reply that reached its limit of tokens, if it is to be
    `whole`); never after a fault of the request.
    `on_restart` gets the number of the try that will come (2, 3, … over all models) as soon as the one before has
    failed: what was streamed is void. Raises the last `ModelError`. What all tries used is in `spending`, whatever
    becomes of the call.
    """
    number = 0
    names = list(dict.fromkeys(models))
    failure = ModelError("bad_request", "no model is given", retryable=False)
    for name in names:
        for attempt in range(1, TRIES + 1):
            number += 1
            spending.begin_try(name)
            try:
                reply = await _one_try(model, request_for(name), spending, on_delta)
                if whole and reply.finish_reason == CUT_OFF:
                    said = "the reply reached its limit of tokens (max_tokens, or the model's own)"
                    raise ModelError("truncated", said, retryable=False)
                return reply
            except ModelError as error:
                failure = error
            logger.warning(
                "try %d of a model call failed (%s): %s",
                number,
                failure.reason,
                failure,
                extra={"action": "model_failed", "model": name, "reason": failure.reason},
            )
            spending.report(failure.usage)
            if not failure.retryable or attempt == TRIES:
                break
            on_restart(number + 1)
            await sleep(_pause(attempt, failure.retry_after_s, jitter()))
        if failure.reason in FAULTS_OF_THE_REQUEST or name == names[-1]:
            break
        on_restart(number + 1)
    raise failure


async def _one_try(
    model: Model, request: ModelRequest, spending: Spending, on_delta: Callable[[Delta], None]
) -> ModelReply:
    async with aclosing(model.stream(request)) as stream:
        async for item in stream:
            if isinstance(item, Delta):
                on_delta(item)
                continue
            if isinstance(item, Usage):
                spending.report(item)
                continue
            spending.report(item.usage)
            return item
    raise ModelError("truncated", "the stream ended without a reply", retryable=False)


def _pause(attempt: int, retry_after_s: float | None, jitter: float) -> float:
    """Return the seconds to wait after try `attempt`; `jitter` is from [0, 1)."""
    if retry_after_s is not None and retry_after_s <= LONGEST_HONOURED_S:
        return retry_after_s + FIRST_PAUSE_S * jitter  # never earlier than asked, and not all at once
    return float(FIRST_PAUSE_S * 2 ** (attempt - 1) * (0.5 + jitter))
