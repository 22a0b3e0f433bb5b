"""The settings of a conversation: only what was given is stored; the rest is the server's at each turn."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

WhenBusy = Literal["enqueue", "steer", "interrupt", "reject"]

MAX_STEPS = 25
MAX_ATTEMPTS = 5

MODEL_PARAMS = frozenset({
    "frequency_penalty", "logit_bias", "max_completion_tokens", "max_tokens", "min_p", "modalities",
    "parallel_tool_calls", "prediction", "presence_penalty", "prompt_cache_key", "reasoning_effort",
    "repetition_penalty", "response_format", "safety_identifier", "safety_settings", "seed", "service_tier", "stop",
    "temperature", "thinking", "tool_choice", "top_k", "top_p", "user", "verbosity", "web_search_options",
})  # fmt: skip
"""What a conversation may set of model calls. Others reach into LiteLLM: `api_base` would send our key to anybody."""


def _known(name: str) -> str:
    if name not in MODEL_PARAMS:
        raise ValueError("is no parameter of model calls that a conversation may set")
    return name


ModelParam = Annotated[str, AfterValidator(_known)]


class ConversationSettings(BaseModel):
    """Settings as given by a caller; every field is optional and None means the server's default."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    model: str | None = Field(default=None, min_length=1, max_length=200)
    fallback_models: list[str] | None = Field(default=None, max_length=10)
    model_params: dict[ModelParam, Any] | None = None
    system_prompt: str | None = None
    tools: list[str] | None = None
    when_busy: WhenBusy | None = None
    approval_timeout_s: float | None = Field(default=None, ge=0, le=10 * 365 * 86_400, allow_inf_nan=False)
    tool_timeout_s: float | None = Field(default=None, gt=0, le=86_400, allow_inf_nan=False)
    max_steps: int | None = Field(default=None, ge=1, le=1_000)
    max_attempts: int | None = Field(default=None, ge=1, le=100)
