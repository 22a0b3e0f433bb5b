"""What was really sent to models: each try of a call is noted, whatever becomes of it, if anybody keeps the notes."""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from commands.agent.model import ModelError, ModelReply
from domain.usage import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from uuid import UUID

    from commands.agent.hook_run import Injected
    from commands.agent.model import Delta, Model, ModelRequest
    from domain.events import Purpose
    from domain.summary_events import SummaryRecorded


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAbout:
    """What a model call is for: a turn's has its number, step and attempt, and saw the log up to `context_seq`."""

    conversation_id: UUID
    purpose: Purpose
    turn: int | None = None
    step: int | None = None
    attempt: int | None = None
    context_seq: int | None = None
    summary: SummaryRecorded | None = None
    injected: Sequence[Injected] = ()


@dataclass(frozen=True, slots=True)
class TryEnded:
    """What became of a try; `reason` is why it failed."""

    outcome: Literal["ok", "failed", "cancelled"]
    latency_ms: int
    reason: str | None = None
    finish_reason: str | None = None
    usage: Usage | None = None


class Audit(Protocol):
    """Keeps notes of model calls, beside them: only `kept` waits, and none ever raises."""

    def begin(self, about: CallAbout, number: int, request: ModelRequest) -> UUID:
        """Note that a try begins, the number-th of its call; returns the id of the note."""
        ...

    def end(self, call: UUID, ended: TryEnded) -> None:
        """Note what became of it."""
        ...

    async def kept(self, call: UUID) -> None:
        """Wait until its beginning is on disk, or for as long as a reply may be delayed by that."""
        ...


def audited(model: Model, audit: Audit | None, about: CallAbout) -> Model:
    """Return a model for the tries of one call, of which notes are taken; the model itself where nobody keeps them."""
    return model if audit is None else _AuditedModel(model, audit, about)


class _AuditedModel:
    def __init__(self, model: Model, audit: Audit, about: CallAbout) -> None:
        self._model, self._audit, self._about = model, audit, about
        self._tries = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Usage | ModelReply, None]:
        """Make one try; its request is on disk before its reply is given out."""
        self._tries += 1
        call = self._audit.begin(self._about, self._tries, request)
        began, usage = time.monotonic(), None
        outcome: Literal["ok", "failed", "cancelled"] = "cancelled"
        reason = finish_reason = None
        try:
            async with aclosing(self._model.stream(request)) as stream:
                async for item in stream:
                    if isinstance(item, Usage):
                        usage = item
                    elif isinstance(item, ModelReply):
                        outcome, finish_reason, usage = "ok", item.finish_reason, item.usage
                        await self._audit.kept(call)
                    yield item
        except Exception as error:
            outcome, reason = "failed", type(error).__name__
            if isinstance(error, ModelError):
                reason, usage = error.reason, error.usage or usage
            raise
        finally:
            latency_ms = round((time.monotonic() - began) * 1000)
            self._audit.end(call, TryEnded(outcome, latency_ms, reason, finish_reason, usage))
