"""What happens to one tool call: it waits for somebody, gets their answer, and its one result."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from domain import events
from domain.aggregate import OpenState
from domain.event_store import MAX_EVENT_BYTES
from domain.parts import fitted, text_part
from domain.scope import SYSTEM
from domain.text import truncated
from domain.wire import dumps

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from domain.conversation_state import OpenCall
    from domain.decisions import Inquiry
    from domain.event_envelope import ConversationEvent
    from domain.parts import Part
    from domain.scope import Actor

CONTENT_BYTES = MAX_EVENT_BYTES - 32 * 1024
"""The most JSON that content may have, so that the event around it fits."""

_EXPLANATION_BYTES = 64 * 1024


class CallDecisions(OpenState):
    """The triggers of a call's events, which people's and workers' commands share."""

    def acting_for(self, call: OpenCall) -> Actor:
        """Say as whom a call runs: who approved it, else the author of the newest message that the turn answers."""
        return call.approved_by or (self.turn.actor if self.turn else SYSTEM)

    def _suspend(self, call: OpenCall, inquiry: Inquiry, *, now: datetime, cause: UUID) -> None:
        self._trigger(
            events.Suspension,
            now=now,
            actor=self.acting_for(call),
            cause=cause,
            tool_call_id=call.tool_call_id,
            kind=inquiry.kind,
            prompt=truncated(inquiry.prompt, _EXPLANATION_BYTES),
            response_schema=inquiry.response_schema,
            expires_at=now + timedelta(seconds=inquiry.timeout_s) if inquiry.timeout_s else None,
        )

    def _resolution(
        self, call: OpenCall, outcome: events.ResolutionOutcome, *, now: datetime, actor: Actor, **said: Any
    ) -> ConversationEvent:
        return self._trigger(
            events.Resolution,
            now=now,
            actor=actor,
            cause=call.question.event_id if call.question else call.event_id,
            tool_call_id=call.tool_call_id,
            outcome=outcome,
            by=actor,
            **said,
        )

    def _result(
        self,
        call: OpenCall,
        status: events.ResultStatus,
        content: Sequence[Part],
        *,
        now: datetime,
        actor: Actor | None = None,
        cause: UUID | None = None,
        resources: list[dict[str, str]] | None = None,
    ) -> None:
        """Give the call its result; after an edit it says which arguments ran."""
        if call.edited and status in ("ok", "error"):
            ran = truncated(dumps(call.args), _EXPLANATION_BYTES)
            content = [text_part(f"A person edited the arguments; it ran with {ran}"), *content]
        self._trigger(
            events.ToolResult,
            now=now,
            actor=actor or self.acting_for(call),
            cause=cause or call.event_id,
            tool_call_id=call.tool_call_id,
            status=status,
            content=fitted(content, CONTENT_BYTES),
            resources=resources,
        )
