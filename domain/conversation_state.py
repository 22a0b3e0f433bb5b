"""What is open in a conversation: the small state that the aggregate folds from its log."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from domain.events import Executor, SuspensionKind
from domain.scope import Actor


@dataclass(slots=True)
class Question:
    """A pending suspension: what a person or client is asked, and until when."""

    kind: SuspensionKind
    prompt: str
    response_schema: dict[str, Any] | None
    expires_at: datetime | None
    event_id: UUID


@dataclass(slots=True)
class OpenCall:
    """A tool call without a result. `args` are those that run (edited ones after an edit)."""

    tool_call_id: str
    name: str
    args: Any
    executor: Executor
    event_id: UUID
    question: Question | None = None
    approved_by: Actor | None = None
    edited: bool = False
    steps: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class WaitingMessage:
    """A message that no turn has answered yet."""

    message_id: str
    seq: int
    when_busy: str
    actor: Actor
    event_id: UUID


@dataclass(slots=True)
class OpenTurn:
    """The turn that has not ended: `settings` are those in force when it started, `resumes` counts since progress."""

    number: int
    seq: int
    event_id: UUID
    actor: Actor
    settings: dict[str, Any]
    last_event_id: UUID
    attempt: int = 1
    step: int = 0
    resumes: int = 0
    summary_to_seq: int | None = None
    tokens: int = 0
    """What its model calls have used so far."""
