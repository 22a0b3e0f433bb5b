"""The events of a conversation: frozen facts with an explicit wire type, the same for every store."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from domain.event_envelope import ConversationEvent
from domain.parts import Part
from domain.scope import Actor
from domain.usage import Usage

Executor = Literal["server", "human", "client"]
SuspensionKind = Literal["approval", "elicitation", "client"]
ResolutionOutcome = Literal["approved", "edited", "rejected", "answered", "expired", "cancelled"]
ResultStatus = Literal["ok", "error", "rejected", "expired", "cancelled"]
TurnOutcome = Literal["completed", "failed", "cancelled"]
Purpose = Literal["turn", "compaction", "title"]
TurnFailure = Literal[
    "rate_limited", "context_window", "auth", "bad_request", "unavailable", "truncated",
    "max_steps", "max_attempts", "halted", "hook_failed", "budget",
]  # fmt: skip
"""Why a turn failed: the model's trouble, its limits, a hook that stopped it or failed itself, and its budget."""


class ConversationStarted(ConversationEvent):
    """The conversation exists."""

    wire_type = "conversation_started"

    tenant: str
    owner: str
    title: str | None = None
    settings: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    forked_from: UUID | None = None
    forked_seq: int | None = None


class ConversationChanged(ConversationEvent):
    """From here on other settings and metadata hold (both whole); `usage` is that of a generated title."""

    wire_type = "conversation_changed"

    title: str | None = None
    settings: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    usage: Usage | None = None


class UserMsg(ConversationEvent):
    """A person (or the caller's system) said something; `respond` false owes no turn."""

    wire_type = "user_msg"

    message_id: str
    role: Literal["user", "system"] = "user"
    content: list[Part]
    metadata: dict[str, Any] = {}
    respond: bool = True
    when_busy: str = "enqueue"


class TurnStarted(ConversationEvent):
    """A worker claims the next turn: it answers every unanswered message, under the settings of `settings_seq`.

    `spent_usd` is what the conversation has cost by then, as far as its own stream tells.
    """

    wire_type = "turn_started"

    turn: int
    answers: list[str]
    settings_seq: int
    spent_usd: float | None = None
    summary_to_seq: int | None = None


class TurnResumed(ConversationEvent):
    """A worker takes the open turn over from one that never let go."""

    wire_type = "turn_resumed"

    turn: int
    attempt: int
    summary_to_seq: int | None = None


class AssistantMsg(ConversationEvent):
    """The model said; its request saw the log up to `context_seq`."""

    wire_type = "assistant_msg"

    turn: int
    attempt: int
    step: int
    content: list[Part]
    model: str
    finish_reason: str
    context_seq: int
    usage: Usage | None = None
    latency_ms: int = 0


class ToolCall(ConversationEvent):
    """The model wants a tool to run; the id is ours, globally unique, and the tool's idempotency key.

    `provider_data` is opaque and returns to its provider only.
    """

    wire_type = "tool_call"

    turn: int
    tool_call_id: str
    provider_id: str | None = None
    name: str
    args: Any = None
    executor: Executor
    gated: bool = False
    provider_data: dict[str, Any] | None = None


class Suspension(ConversationEvent):
    """A person or client is owed a question; a second one of the same kind replaces the deadline."""

    wire_type = "suspension"

    tool_call_id: str
    kind: SuspensionKind
    prompt: str
    response_schema: dict[str, Any] | None = None
    expires_at: datetime | None = None


class Resolution(ConversationEvent):
    """The answer to a suspension."""

    wire_type = "resolution"

    tool_call_id: str
    outcome: ResolutionOutcome
    args: Any = None
    answer: Any = None
    reason: str | None = None
    by: Actor


class ToolStep(ConversationEvent):
    """A long tool's checkpoint: the value of its n-th step of that name."""

    wire_type = "tool_step"

    tool_call_id: str
    step: str
    n: int
    value: Any = None


class Resource(BaseModel):
    """Something that a tool touched: a path and what was done to it (``read``, ``write``, …)."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    path: str
    op: str


class ToolResult(ConversationEvent):
    """The one result of a tool call."""

    wire_type = "tool_result"

    tool_call_id: str
    status: ResultStatus
    content: list[Part]
    resources: list[Resource] | None = None


class TurnEnded(ConversationEvent):
    """The one end of a turn; `reason` is a `TurnFailure` where it failed, a person's words where it was cancelled.

    `detail` is what there is to say to people of a failure: which hook it was, and why; which budget, and how much.
    """

    wire_type = "turn_ended"

    turn: int
    outcome: TurnOutcome
    reason: str | None = None
    detail: str | None = None
    partial_text: str | None = None
    usage: list[Usage] | None = None
    compact: bool | None = None


class UsageReported(ConversationEvent):
    """What model calls used that left nothing else to tell it: stopped ones, tries of other models than the answer's.

    It may come late: after its turn has ended, and after the conversation has.
    """

    wire_type = "usage_reported"

    purpose: Purpose
    turn: int | None = None
    usage: list[Usage]


class ConversationFinished(ConversationEvent):
    """Nothing more is accepted."""

    wire_type = "conversation_ended"

    reason: str | None = None


class ForkCompleted(ConversationEvent):
    """The events that a fork copies are whole."""

    wire_type = "fork_completed"


EVENT_TYPES: dict[str, type[ConversationEvent]] = {
    event.wire_type: event
    for event in (
        ConversationStarted,
        ConversationChanged,
        UserMsg,
        TurnStarted,
        TurnResumed,
        AssistantMsg,
        ToolCall,
        Suspension,
        Resolution,
        ToolStep,
        ToolResult,
        TurnEnded,
        UsageReported,
        ConversationFinished,
        ForkCompleted,
    )
}
"""Wire type → event class."""
