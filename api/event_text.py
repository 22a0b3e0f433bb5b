"""What an event says, in a line for people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from api.printable import on_one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

COLOURS = {
    "user_msg": "green",
    "assistant_msg": "cyan",
    "tool_call": "yellow",
    "tool_step": "yellow",
    "tool_result": "yellow",
    "suspension": "bold magenta",
    "resolution": "magenta",
    "conversation_ended": "red",
}
"""Of event types; the frame around them is dim."""


def event_text(event_type: str, data: Mapping[str, Any]) -> str:
    """Return one line; what an unknown type or shape says is its data."""
    text = _TEXTS.get(event_type, _written)
    try:
        return on_one_line(text(data))
    except (KeyError, TypeError, AttributeError):  # of a shape that this code does not know
        return on_one_line(_written(data))


def call_text(name: str, args: object) -> str:
    """Return a call as code shows it."""
    if not isinstance(args, dict):
        return f"{name}({_written(args)})"
    return f"{name}({', '.join(f'{key}={_written(value)}' for key, value in args.items())})"


def parts_text(parts: Any) -> str:
    """Return the text of content parts; others are named by their type."""
    return " ".join(part["text"] if part.get("type") == "text" else f"[{part.get('type')}]" for part in parts)


def _written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _joined(*words: object, by: str = " ") -> str:
    return by.join(str(word) for word in words if word)


def _started(data: Mapping[str, Any]) -> str:
    forked = f"forked from {data['forked_from']}, event {data['forked_seq']}" if data.get("forked_from") else ""
    return _joined(f"{data['tenant']}/{data['owner']}", _titled(data), forked, by=", ")


def _titled(data: Mapping[str, Any]) -> str:
    return f"title {_written(data['title'])}" if data.get("title") is not None else ""


_TEXTS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "conversation_started": _started,
    "fork_completed": lambda data: "",
    "conversation_changed": lambda data: _joined(
        _titled(data), f"settings {_written(data.get('settings', {}))}", by=", "
    ),
    "user_msg": lambda data: parts_text(data["content"]),
    "turn_started": lambda data: f"turn {data['turn']}",
    "turn_resumed": lambda data: f"turn {data['turn']}, attempt {data['attempt']}",
    "assistant_msg": lambda data: parts_text(data["content"]),
    "tool_call": lambda data: call_text(data["name"], data.get("args")),
    "suspension": lambda data: f"{data['kind']}: {data['prompt']}",
    "resolution": lambda data: _joined(
        f"{data['outcome']} by {data['by']['id']}",
        _written(data["args"]) if "args" in data else "",
        _written(data["answer"]) if "answer" in data else "",
        data.get("reason"),
        by=": ",
    ),
    "tool_step": lambda data: f"{data['step']} {data['n']}: {_written(data.get('value'))}",
    "tool_result": lambda data: _joined(data["status"] + ":", parts_text(data["content"])),
    "turn_ended": lambda data: _joined(
        f"turn {data['turn']} {data['outcome']}", data.get("reason"), data.get("detail"), by=": "
    ),
    "usage_reported": lambda data: _joined(data["purpose"], *(usage.get("model") for usage in data["usage"])),
    "conversation_ended": lambda data: data.get("reason") or "",
}
