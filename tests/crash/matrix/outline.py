"""What a log says, without what differs from run to run: ids, times, attempts, and the order of what runs at once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from domain import events
from domain.parts import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from domain.event_envelope import ConversationEvent


def outline_of(log: Sequence[ConversationEvent]) -> list[str]:
    """Describe a log: a line for each turn, with what it answered, and below it one for each reply and call."""
    lines: list[str] = []
    said = {event.message_id: text_of(event.content) for event in log if isinstance(event, events.UserMsg)}
    results = {event.tool_call_id: event for event in log if isinstance(event, events.ToolResult)}
    decided: dict[str, list[str]] = {}
    for event in log:
        if isinstance(event, events.Resolution):
            decided.setdefault(event.tool_call_id, []).append(event.outcome)
    ends = {event.turn: event for event in log if isinstance(event, events.TurnEnded)}
    for event in log:
        match event:
            case events.TurnStarted():
                end = ends.get(event.turn)
                outcome = f"{end.outcome} {end.reason or ''}".strip() if end else "open"
                lines.append(f"turn {outcome} <- {' + '.join(said[one] for one in event.answers)}")
            case events.AssistantMsg():
                lines.append(f"  said: {text_of(event.content)}")
            case events.ToolCall():
                result = results.get(event.tool_call_id)
                ended = f"{result.status} | {text_of(result.content)}" if result else "open"
                answered = ", ".join(decided.get(event.tool_call_id, ()))
                lines.append(f"    {event.name} {json.dumps(event.args)} [{answered}] {ended}")
            case events.UserMsg() if event.when_busy == "steer":
                lines.append(f"  steered: {text_of(event.content)}")
            case events.ConversationFinished():
                lines.append("ended")
    return lines


def told(log: Sequence[ConversationEvent]) -> list[str]:
    """Describe a log event by event, for people."""
    return [
        f"{event.seq:3} {event.timestamp:%M:%S.%f} {event.wire_type} {event.model_dump_json(exclude_none=True)[:300]}"
        for event in log
    ]
