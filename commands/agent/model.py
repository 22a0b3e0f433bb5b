"""The port to language models: one streamed try of one call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from domain.parts import Part
    from domain.usage import Usage

FailureReason = Literal["rate_limited", "context_window", "auth", "bad_request", "unavailable", "truncated"]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A call: `messages` and `tools` in the format of OpenAI's chat completions, `params` passed through.

    `max_total_s` bounds the whole call, `max_gap_s` the wait for the next chunk.
    """

    model: str
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    max_gap_s: float = 60.0
    max_total_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of the reply as it streams."""

    kind: Literal["text", "thinking"]
    text: str


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A tool that the model wants to be called; `arguments` is the raw text it produced, perhaps no JSON.

    `provider_data` is opaque (a signature of the thoughts that led to the call) and goes back to its provider.
    """

    provider_id: str | None
    name: str
    arguments: str
    provider_data: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A whole reply, the last item of a stream."""

    content: list[Part]
    tool_requests: tuple[ToolRequest, ...]
    model: str
    finish_reason: str
    usage: Usage | None
    latency_ms: int


class ModelError(Exception):
    """A try failed; `usage` is what the provider charged for it, where it said so."""

    def __init__(
        self,
        reason: FailureReason,
        detail: str,
        *,
        retryable: bool,
        retry_after_s: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(detail)
        self.reason, self.retryable, self.retry_after_s, self.usage = reason, retryable, retry_after_s, usage


class Model(Protocol):
    """Something that answers model calls."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Usage | ModelReply, None]:
        """Make one try: deltas as they come, then one `ModelReply`; closing the generator closes the upstream.

        What the try has used by then is told whenever the provider reports more before the end.

        Raises `ModelError`.
        """
        ...
