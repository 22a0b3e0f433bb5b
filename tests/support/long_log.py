"""A conversation of any length that takes no room: each event is made when it is read, and what is read is counted."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from domain.event_store import StoredEvent
from domain.wire import dumps, stream_of
from tests.support.given import NOW

if TYPE_CHECKING:
    from collections.abc import Iterator

CONVERSATION_ID = UUID(int=7)
TURN = 6
"""So many events has each turn: a question, a call of a tool, and an answer."""
_ADA, _WORKER = {"kind": "user", "id": "ada"}, {"kind": "system", "id": "rejoinder"}


class LongLog:
    """The log of one conversation, whose first event is followed by turns that are alike."""

    def __init__(self, events: int) -> None:
        self.events = events
        self.read_events = 0

    async def read(
        self, stream: str, *, after: int = 0, before: int | None = None, limit: int | None = None, first: bool = False
    ) -> list[StoredEvent]:
        """Read as a store does."""
        if stream != stream_of(CONVERSATION_ID):
            return []
        begin, end = after + 1, min(self.events + 1, before or self.events + 1)
        if limit is not None:
            begin, end = (begin, min(end, begin + limit)) if first else (max(begin, end - limit), end)
        self.read_events += max(0, end - begin)
        return [event_at(seq) for seq in range(begin, end)]


def log_of(events: int) -> Iterator[StoredEvent]:
    """Yield the whole of such a log."""
    return map(event_at, range(1, events + 1))


def event_at(seq: int) -> StoredEvent:
    """Make the event of a seq."""
    event_type, data = _said(seq)
    metadata = {
        "event_id": str(UUID(int=seq)),
        "occurred_at": (NOW + timedelta(seconds=seq)).isoformat(),
        "correlation_id": str(UUID(int=seq)),
        "causation_id": None,
        "actor": _ADA if event_type in ("conversation_started", "user_msg") else _WORKER,
        "schema_version": 1,
    }
    return StoredEvent(stream_of(CONVERSATION_ID), seq, seq, UUID(int=seq), event_type, dumps(data), dumps(metadata))


def _said(seq: int) -> tuple[str, dict[str, Any]]:
    if seq == 1:
        return "conversation_started", {"tenant": "acme", "owner": "ada", "settings": {}, "metadata": {}}
    before, place = divmod(seq - 2, TURN)
    turn, began = before + 1, 2 + before * TURN
    match place:
        case 0:
            content = [{"type": "text", "text": f"question {turn}"}]
            return "user_msg", {"message_id": f"m{turn}", "content": content}
        case 1:
            return "turn_started", {"turn": turn, "answers": [f"m{turn}"], "settings_seq": 1}
        case 2:
            reply = {"content": [], "model": "demo", "finish_reason": "tool_calls", "context_seq": began + 1}
            return "assistant_msg", {"turn": turn, "attempt": 1, "step": 1, **reply}
        case 3:
            call = {"tool_call_id": f"call_{turn}", "provider_id": "call_0", "name": "search"}
            return "tool_call", {"turn": turn, **call, "args": {"query": f"q{turn}"}, "executor": "server"}
        case 4:
            content = [{"type": "text", "text": f"found {turn}"}]
            return "tool_result", {"tool_call_id": f"call_{turn}", "status": "ok", "content": content}
        case _:
            return "turn_ended", {"turn": turn, "outcome": "failed", "reason": "rate_limited"}
