"""What people and workers hand to the aggregate: messages, decisions, replies and the calls that they propose."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from domain.events import Executor, SuspensionKind
    from domain.parts import Part
    from domain.usage import Usage


@dataclass(frozen=True, slots=True)
class Message:
    """A message to record; `when_busy` is already resolved against settings."""

    message_id: str
    content: list[Part]
    role: Literal["user", "system"] = "user"
    metadata: dict[str, Any] = field(default_factory=dict)
    respond: bool = True
    when_busy: str = "enqueue"


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question that a call waits for: `timeout_s` None or 0 means no deadline."""

    kind: SuspensionKind
    prompt: str
    response_schema: dict[str, Any] | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's or client's answer. `inquiry` is what a client tool is asked once its run is approved."""

    tool_call_id: str
    outcome: Literal["approve", "edit", "reject", "answer"]
    args: Any = None
    answer: Any = None
    reason: str | None = None
    inquiry: Inquiry | None = None


@dataclass(frozen=True, slots=True)
class ProposedCall:
    """A tool call that the model wants, checked against the tools: `error` says why it cannot run."""

    tool_call_id: str
    provider_id: str | None
    name: str
    args: Any
    executor: Executor
    gated: bool = False
    inquiry: Inquiry | None = None
    error: str | None = None
    provider_data: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole model reply; its request saw the log up to `context_seq`.

    `usage` is that of all tries of its model, `usage_of_others` that of models which were asked before in vain.
    `compact`: with it the conversation is larger than its budget.
    """

    step: int
    content: list[Part]
    model: str
    finish_reason: str
    context_seq: int
    calls: tuple[ProposedCall, ...] = ()
    usage: Usage | None = None
    usage_of_others: Sequence[Usage] = ()
    latency_ms: int = 0
    compact: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a server call ended."""

    tool_call_id: str
    status: Literal["ok", "error"]
    content: list[Part]
    resources: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Rescheduling:
    """Another deadline for a pending call, None for none."""

    tool_call_id: str
    expires_at: datetime | None
