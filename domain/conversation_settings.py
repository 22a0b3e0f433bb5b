"""The settings of a conversation: only what was given is stored; the rest is the server's at each turn."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

WhenBusy = Literal["enqueue", "steer", "interrupt", "reject"]

MAX_STEPS = 25
MAX_ATTEMPTS = 5

Number = Annotated[float, Field(allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=1)]
Object = dict[str, Any]


class ModelParams(BaseModel):
    """What a conversation may set of model calls: the kind of each value; its range is the provider's affair.

    Other parameters reach into LiteLLM: `api_base` would send our key to anybody.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    frequency_penalty: Number | None = None
    logit_bias: dict[str, Number] | None = None
    max_completion_tokens: Tokens | None = None
    max_tokens: Tokens | None = None
    min_p: Number | None = None
    modalities: list[str] | None = None
    parallel_tool_calls: bool | None = None
    prediction: Object | None = None
    presence_penalty: Number | None = None
    prompt_cache_key: str | None = None
    reasoning_effort: str | Object | None = None
    repetition_penalty: Number | None = None
    response_format: Object | None = None
    safety_identifier: str | None = None
    safety_settings: list[Object] | None = None
    seed: int | None = None
    service_tier: str | None = None
    stop: str | list[str] | None = None
    temperature: Number | None = None
    thinking: Object | None = None
    tool_choice: str | Object | None = None
    top_k: int | None = None
    top_p: Number | None = None
    user: str | None = None
    verbosity: str | None = None
    web_search_options: Object | None = None


class CompactionSettings(BaseModel):
    """How a conversation is kept within what a model can see: tokens are estimated, four bytes each."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    strategy: Literal["llm", "window", "none"] | None = None
    budget_tokens: int | None = Field(default=None, ge=100, le=100_000_000)
    keep_recent_tokens: int | None = Field(default=None, ge=0, le=100_000_000)
    model: str | None = Field(default=None, min_length=1, max_length=200)


class ConversationSettings(BaseModel):
    """Settings as given by a caller; every field is optional and None means the server's default."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    model: str | None = Field(default=None, min_length=1, max_length=200)
    fallback_models: list[str] | None = Field(default=None, max_length=10)
    model_params: ModelParams | None = None
    system_prompt: str | None = None
    tools: list[str] | None = None
    hooks: list[str] | None = None
    when_busy: WhenBusy | None = None
    approval_timeout_s: float | None = Field(default=None, ge=0, le=10 * 365 * 86_400, allow_inf_nan=False)
    tool_timeout_s: float | None = Field(default=None, gt=0, le=86_400, allow_inf_nan=False)
    max_steps: int | None = Field(default=None, ge=1, le=1_000)
    max_attempts: int | None = Field(default=None, ge=1, le=100)
    compaction: CompactionSettings | None = None
    max_cost_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """What the whole conversation may cost: once it has, a turn calls no model any more and fails (``budget``).

    Compactions are not counted, and a call whose model has no known price costs nothing.
    """
    max_tokens_per_turn: int | None = Field(default=None, ge=1)
    """What the model calls of one turn may read and write together before a further one fails it (``budget``)."""
    titles: bool | None = None
    """Whether a model names the conversation after its first answer, unless a person has."""
