"""What is recorded of model calls that left no reply: what they used, and the title that one of them gave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domain import events
from domain.call_decisions import CallDecisions
from domain.scope import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from domain.conversation_state import OpenTurn
    from domain.usage import Usage


class UsageDecisions(CallDecisions):
    """The aggregate's commands for calls beside the replies."""

    def entitle(self, title: str | None, usage: Usage | None, *, now: datetime) -> None:
        """Put a title that a model gave, as the system; without one, or at the end, only what asking for it used."""
        if title is not None and not (self.ended or self.copying):
            self._trigger(
                events.ConversationChanged,
                now=now,
                actor=SYSTEM,
                title=title,
                settings=self.settings,
                metadata=self.metadata,
                usage=usage,
            )
        elif usage is not None:
            self._trigger(events.UsageReported, now=now, actor=SYSTEM, purpose="title", usage=[usage])

    def report_usage(self, turn: OpenTurn, usage: Sequence[Usage], *, now: datetime) -> None:
        """Record what a model call of a turn used that left no reply, also after the turn or conversation has ended."""
        self._trigger(
            events.UsageReported,
            now=now,
            actor=SYSTEM,
            cause=turn.event_id,
            correlation=turn.event_id,
            purpose="turn",
            turn=turn.number,
            usage=list(usage),
        )
