"""LiteLLM itself: imported when first needed, told to keep quiet and off the network, and asked for prices."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import os
import sys
from functools import cache
from typing import Any

import orjson

from domain.usage import Usage

OFFLINE = ("LITELLM_LOCAL_MODEL_COST_MAP", "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS")
"""Variables without which it fetches files from GitHub."""
ASKED_OVER_HTTP = ("ollama/", "ollama_chat/")
"""Models of which it asks their server instead of its own list."""
TALKATIVE = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy", "openai", "httpx", "httpcore")
"""Loggers that would write messages, keys and URLs into our log."""

CANNED = b"".join(
    b"data: %b\n\n" % orjson.dumps({"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"} | chunk)
    for chunk in (
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "hello"}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}},
    )
)
"""A reply in the format of OpenAI's chat completions."""


@cache
def load_litellm() -> Any:
    """Import LiteLLM: 4 to 5 seconds and 190 MB the first time, so only ever in its own thread."""
    for variable in OFFLINE:
        os.environ[variable] = "True"
    litellm: Any = importlib.import_module("litellm")
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.disable_hf_tokenizer_download = True
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # The OpenAI SDK walks all messages to rename aliased keys, of which chat completions have none: 27 of the 32 ms
    # that a call with 200 messages takes to reach the server, spent on the loop and holding the interpreter's lock.
    completions: Any = importlib.import_module("openai.resources.chat.completions.completions")
    completions.async_maybe_transform = _as_it_is
    return litellm


async def _as_it_is(body: Any, expected_type: Any) -> Any:
    return body


async def warm_litellm() -> None:
    """Import it, and make a call that ends at a fake transport, for the first call loads much more."""
    litellm = load_litellm()
    httpx, openai = importlib.import_module("httpx"), importlib.import_module("openai")

    def answer(_: Any) -> Any:
        return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=CANNED)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        chunks = await litellm.acompletion(
            model="openai/warm-up",
            messages=[{"role": "user", "content": "hello"}],
            tools=[{"type": "function", "function": {"name": "warm_up", "parameters": {"type": "object"}}}],
            stream=True,
            stream_options={"include_usage": True},
            client=openai.AsyncOpenAI(api_key="none", base_url="http://warm-up.invalid/v1", http_client=http),
        )
        async for _ in chunks:
            pass


async def look_up_window(model: str) -> int | None:
    """Return how many tokens a request to a model may have, by the list that comes with LiteLLM; None if unknown."""
    if model.startswith(ASKED_OVER_HTTP):
        return None
    try:
        known = load_litellm().get_model_info(model)
    except Exception:  # it raises just that for a model that is not in its list
        return None
    window: int | None = known.get("max_input_tokens") or known.get("max_tokens")
    return window


async def close_clients() -> None:
    """Close the HTTP clients that LiteLLM keeps for the running loop, and make it forget them."""
    litellm = sys.modules.get("litellm")
    if litellm is None:
        return
    kept = litellm.in_memory_llm_clients_cache.cache_dict
    vars(litellm).pop("module_level_aclient", None)  # one of them, that would outlive its closing
    mine = f"-{id(asyncio.get_running_loop())}"
    for key in [key for key in kept if key.endswith(mine)]:
        closing = kept.pop(key).close()
        if inspect.isawaitable(closing):
            await closing


class ReportedUsage:
    """What the provider has reported in a stream so far: its newest report, for reports are cumulative.

    LiteLLM makes usage up where none was reported (by counting tokens); only the chunks that it keeps tell.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._read = self._input = self._cached = 0
        self.usage: Usage | None = None

    def read(self, chunks: Any) -> Usage | None:
        """Look at the chunks that are new; returns the usage if it has changed."""
        kept = getattr(chunks, "chunks", None) or ()
        reports = [chunk.usage for chunk in kept[self._read :] if getattr(chunk, "usage", None)]
        self._read = len(kept)
        if not reports:
            return None
        newest, before = reports[-1], self.usage
        self._input = max(self._input, *(report.prompt_tokens or 0 for report in reports))
        self._cached = max(self._cached, *(_cached(report) for report in reports))
        self.usage = Usage(
            model=self._model,
            input_tokens=self._input,
            output_tokens=newest.completion_tokens or 0,
            cached_tokens=self._cached,
            cost_usd=_cost(newest, self._model),
        )
        return self.usage if self.usage != before else None


def _cached(report: Any) -> int:
    return getattr(report.prompt_tokens_details, "cached_tokens", None) or 0


def _cost(report: Any, model: str) -> float | None:
    """Return the provider's own figure, else LiteLLM's price list's; None for a model that it does not list."""
    if isinstance(charged := getattr(report, "cost", None), int | float):
        return float(charged)
    try:
        prompt, completion = load_litellm().cost_per_token(model=model, usage_object=report)
    except Exception:  # it raises just that for what it has no price for
        return None
    return float(prompt + completion)
