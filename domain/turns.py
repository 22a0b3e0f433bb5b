"""What workers decide about turns; each decision is refused (`Superseded`) only if its place was taken."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from domain import events
from domain.call_decisions import CONTENT_BYTES
from domain.errors import Superseded
from domain.parts import fitted, text_part
from domain.scope import SYSTEM
from domain.text import clean, truncated
from domain.usage_decisions import UsageDecisions
from domain.wire import dumps

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from domain.conversation_state import OpenCall, OpenTurn
    from domain.decisions import Outcome, ProposedCall, Reply
    from domain.scope import Actor
    from domain.usage import Usage

_REASON_BYTES = 8 * 1024


class TurnDecisions(UsageDecisions):
    """The aggregate's commands that make a turn go on."""

    def start_turn(self, *, now: datetime, summary_to_seq: int | None = None) -> None:
        """Claim the next turn for every unanswered message; the model sees this summary, and what came after it."""
        if self.ended or self.copying or self.turn is not None or not self.waiting:
            raise Superseded("there is no turn to start")
        self._claim(now=now, summary_to_seq=summary_to_seq)

    def resume_turn(self, turn: int, attempt: int, *, now: datetime, summary_to_seq: int | None = None) -> None:
        """Take the open turn over from a worker that never let go, or go on with another summary.

        The attempt after `attempt` begins.
        """
        open_turn = self._held(turn, attempt)
        self._trigger(
            events.TurnResumed,
            now=now,
            actor=open_turn.actor,
            cause=open_turn.last_event_id,
            turn=turn,
            attempt=attempt + 1,
            summary_to_seq=summary_to_seq,
        )

    def record_reply(self, turn: int, attempt: int, reply: Reply, *, now: datetime) -> None:
        """Record a reply with its calls, their suspensions and the results of calls that cannot run.

        A reply without calls ends the turn, unless a steering message came that it did not see.
        Raises `ValueError` for a call that nobody could ever run or answer.
        """
        open_turn = self._held(turn, attempt)
        if reply.step != open_turn.step + 1 or self.calls:
            raise Superseded(f"step {reply.step} has its reply, or the one before it still has open calls")
        calls = [_recordable(proposed) for proposed in reply.calls]
        said = self._trigger(
            events.AssistantMsg,
            now=now,
            actor=open_turn.actor,
            cause=open_turn.last_event_id,
            turn=turn,
            attempt=attempt,
            step=reply.step,
            content=fitted(reply.content, CONTENT_BYTES),
            model=reply.model,
            finish_reason=reply.finish_reason,
            context_seq=reply.context_seq,
            usage=reply.usage,
            latency_ms=reply.latency_ms,
        )
        actor = open_turn.actor  # a steering message that the reply saw may have changed it
        if reply.usage_of_others:
            self._trigger(
                events.UsageReported,
                now=now,
                actor=SYSTEM,
                cause=said.event_id,
                correlation=open_turn.event_id,
                purpose="turn",
                turn=turn,
                usage=list(reply.usage_of_others),
            )
        for proposed in calls:
            self._trigger(
                events.ToolCall,
                now=now,
                actor=actor,
                cause=said.event_id,
                turn=turn,
                tool_call_id=proposed.tool_call_id,
                provider_id=proposed.provider_id,
                name=proposed.name,
                args=proposed.args,
                executor=proposed.executor,
                gated=proposed.gated,
                provider_data=proposed.provider_data,
            )
        for proposed in calls:
            call = self.calls[proposed.tool_call_id]
            if proposed.error is not None:
                self._result(call, "error", [text_part(proposed.error)], now=now, actor=actor)
            elif proposed.inquiry is not None:
                self._suspend(call, proposed.inquiry, now=now, cause=call.event_id)
        steered = any(m.when_busy == "steer" and m.seq > open_turn.seq for m in self.waiting.values())
        if not calls and not steered:
            self._close("completed", None, now=now, actor=actor, compact=reply.compact)

    def record_step(
        self, turn: int, attempt: int, tool_call_id: str, step: str, n: int, value: Any, *, now: datetime
    ) -> None:
        """Record the value of a tool's n-th step of a name (n counts from 1)."""
        self._held(turn, attempt)
        call = self._open(tool_call_id)
        if call.question is not None:
            raise Superseded(f"{tool_call_id} waits for an answer")
        if n != call.steps.get(step, 0) + 1:
            raise Superseded(f"step {step} {n} of {tool_call_id} has its value")
        self._trigger(
            events.ToolStep,
            now=now,
            actor=self.acting_for(call),
            cause=call.event_id,
            tool_call_id=tool_call_id,
            step=step,
            n=n,
            value=value,
        )

    def record_result(self, turn: int, attempt: int, outcome: Outcome, *, now: datetime) -> None:
        """Record how a server call ended."""
        self._held(turn, attempt)
        call = self._open(outcome.tool_call_id)
        if call.question is not None:
            raise Superseded(f"{outcome.tool_call_id} waits for an answer")
        self._result(call, outcome.status, outcome.content, now=now, resources=outcome.resources or None)

    def expire(self, tool_call_ids: Sequence[str], *, now: datetime) -> None:
        """Close those of these calls whose deadline has passed, as the system."""
        for tool_call_id in tool_call_ids:
            call = self.calls.get(tool_call_id)
            if call and call.question and call.question.expires_at and call.question.expires_at <= now:
                cause = self._resolution(call, "expired", now=now, actor=SYSTEM).event_id
                self._result(
                    call, "expired", [text_part("Nobody answered in time.")], now=now, actor=SYSTEM, cause=cause
                )

    def fail_turn(
        self,
        turn: int,
        attempt: int,
        reason: events.TurnFailure,
        *,
        now: datetime,
        detail: str | None = None,
        usage: Sequence[Usage] | None = None,
        compact: bool = False,
    ) -> None:
        """End the turn without success; open calls get their error results in the same append."""
        open_turn = self._held(turn, attempt)
        self._close("failed", reason, now=now, actor=open_turn.actor, detail=detail, usage=usage, compact=compact)

    def _held(self, turn: int, attempt: int) -> OpenTurn:
        if self.copying or self.turn is None or self.turn.number != turn or self.turn.attempt != attempt:
            raise Superseded(f"turn {turn} is no longer held by attempt {attempt}")
        return self.turn

    def _open(self, tool_call_id: str) -> OpenCall:
        call = self.calls.get(tool_call_id)
        if call is None:
            raise Superseded(f"{tool_call_id} has its result")
        return call

    def _claim(self, *, now: datetime, summary_to_seq: int | None = None) -> None:
        newest = max(self.waiting.values(), key=lambda message: message.seq)
        self._trigger(
            events.TurnStarted,
            now=now,
            actor=newest.actor,
            cause=newest.event_id,
            turn=self.turns + 1,
            answers=list(self.waiting),
            settings_seq=self.settings_seq,
            summary_to_seq=summary_to_seq,
            spent_usd=self.spent_usd or None,
        )

    def _close(
        self,
        outcome: events.TurnOutcome,
        reason: str | None,
        *,
        now: datetime,
        actor: Actor,
        detail: str | None = None,
        partial_text: str | None = None,
        usage: Sequence[Usage] | None = None,
        compact: bool = False,
    ) -> None:
        """End the open turn, every open call first: its question cancelled, its result ``cancelled`` or ``error``."""
        assert self.turn is not None
        status: events.ResultStatus = "cancelled" if outcome == "cancelled" else "error"
        said = "The turn was cancelled." if outcome == "cancelled" else f"The turn failed ({reason})."
        for call in list(self.calls.values()):
            effect = " It may have taken effect." if call.executor == "server" and call.question is None else ""
            if call.question is not None:
                self._resolution(call, "cancelled", now=now, actor=actor)
            self._result(call, status, [text_part(said + effect)], now=now, actor=actor)
        self._trigger(
            events.TurnEnded,
            now=now,
            actor=actor,
            cause=self.turn.last_event_id,
            turn=self.turn.number,
            outcome=outcome,
            reason=truncated(reason, _REASON_BYTES) if reason else None,
            detail=truncated(detail, _REASON_BYTES) if detail else None,
            partial_text=truncated(partial_text, CONTENT_BYTES) if partial_text else None,
            usage=list(usage) if usage else None,
            compact=compact or None,
        )


def _recordable(proposed: ProposedCall) -> ProposedCall:
    """Return the call as the log can hold it: one with arguments too large for an event cannot run."""
    if proposed.error is None and proposed.inquiry is None and (proposed.gated or proposed.executor != "server"):
        raise ValueError(f"{proposed.name} waits for somebody but asks nothing")
    size = len(dumps(clean(proposed.args)).encode())
    if size > CONTENT_BYTES:
        proposed = replace(proposed, args={}, error=f"The arguments are too large: {size:,} bytes of JSON.")
    opaque = proposed.provider_data
    if opaque is not None and size + len(dumps(clean(opaque)).encode()) > CONTENT_BYTES:
        opaque = None  # cut short it would be worth nothing
    provider_id = truncated(proposed.provider_id, _REASON_BYTES) if proposed.provider_id else None
    name = truncated(proposed.name, _REASON_BYTES)
    return replace(proposed, name=name, provider_id=provider_id, provider_data=opaque)
