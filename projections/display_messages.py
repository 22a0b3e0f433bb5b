"""What people see of a conversation: one row for each thing said, done, asked or gone wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, LiteralString

from projections.projection import Projection, Row, Rows
from projections.search import INDEX, words_column
from projections.tool_calls import decision_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from projections.event import Event

CONTENT_TYPES = {"text": "text", "thinking": "thinking", "image_url": "image"}
"""Type of a part → content_type; any other part is a file."""

RESULTS = {
    "ok": "completed",
    "error": "failed",
    "rejected": "rejected",
    "expired": "expired",
    "cancelled": "cancelled",
}
"""Status of a tool's result → status of what is shown of it."""


def fold(rows: Rows, events: Sequence[Event]) -> None:
    """Show each event; messages wait for their answer and calls for their result."""
    for event in events:
        match event.type:
            case "user_msg":
                _said_by_user(rows, event)
            case "turn_started":
                _answered(rows, event, set(event.data["answers"]))
            case "assistant_msg":
                _answered(rows, event, _seen_steering(rows, event.data["context_seq"]))
                _said_by_model(rows, event)
            case "tool_call":
                _called(rows, event)
            case "suspension" | "resolution" | "tool_result":
                _went_on(rows, event)
            case "turn_ended":
                _turn_ended(rows, event)
            case "conversation_ended":
                _conversation_ended(rows, event)


def _row(event: Event, sequence: int, message_type: str, content_type: str, content: Any, **more: Any) -> Row:
    return {
        "seq": event.seq,
        "sequence": sequence,
        "event_id": event.event_id,
        "turn": event.data.get("turn"),
        "message_type": message_type,
        "content_type": content_type,
        "content": content,
        "status": "completed",
        "metadata": {},
        "message_id": None,
        "tool_call_id": None,
        "when_busy": None,
        "occurred_at": event.occurred_at,
    } | more


def _shown(parts: list[dict[str, Any]]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield index, content type and content; what is opaque to all but the provider stays away."""
    for index, part in enumerate(parts):
        content = {name: value for name, value in part.items() if name != "provider_data"}
        yield index, CONTENT_TYPES.get(part["type"], "file"), content


def _said_by_user(rows: Rows, event: Event) -> None:
    data = event.data
    who = "system" if data.get("role") == "system" else "user"
    for index, content_type, content in _shown(data["content"]):
        rows.put(
            _row(
                event,
                index,
                who,
                content_type,
                content,
                status="pending" if data.get("respond", True) else "completed",
                metadata=data.get("metadata", {}),
                message_id=data["message_id"],
                when_busy=data.get("when_busy", "enqueue"),
            )
        )


def _seen_steering(rows: Rows, context_seq: int) -> set[str]:
    return {row["message_id"] for row in rows if row["when_busy"] == "steer" and row["seq"] <= context_seq}


def _answered(rows: Rows, event: Event, message_ids: set[str]) -> None:
    for row in rows:
        if row["message_id"] in message_ids:
            rows.put(row | {"status": "completed", "turn": event.data["turn"]})


def _said_by_model(rows: Rows, event: Event) -> None:
    data = event.data
    metadata = {name: data[name] for name in ("step", "model", "finish_reason", "usage", "latency_ms") if name in data}
    for index, content_type, content in _shown(data["content"]):
        rows.put(_row(event, index, "assistant", content_type, content, metadata=metadata))


def _called(rows: Rows, event: Event) -> None:
    data = event.data
    content = {name: data.get(name) for name in ("tool_call_id", "name", "args", "executor")}
    content["gated"] = data.get("gated", False)
    call_id = data["tool_call_id"]
    rows.put(_row(event, 0, "tool", "tool_call", content, status="executing", tool_call_id=call_id))


def _went_on(rows: Rows, event: Event) -> None:
    data = event.data
    call = next((row for row in rows if row["tool_call_id"] == data["tool_call_id"]), None)
    if event.type == "tool_result":
        content = {name: data[name] for name in ("tool_call_id", "status", "content", "resources") if name in data}
        turn, status = call["turn"] if call else None, RESULTS[data["status"]]
        more = {"status": status, "turn": turn, "tool_call_id": data["tool_call_id"]}
        rows.put(_row(event, 0, "tool", "tool_result", content, **more))
        if call:
            rows.put(call | {"status": status})
    elif call and event.type == "suspension":
        asked = {name: data.get(name) for name in ("kind", "prompt", "response_schema", "expires_at")}
        rows.put(call | {"status": "awaiting_input", "content": call["content"] | asked})
    elif call:
        decided: dict[str, Any] = {"decision": decision_of(event)}
        if data["outcome"] == "edited":
            decided["edited_args"] = data.get("args")
        rows.put(call | {"status": "executing", "content": call["content"] | decided})


def _turn_ended(rows: Rows, event: Event) -> None:
    data = event.data
    if data["outcome"] == "completed":
        return
    index = 0
    if data.get("partial_text"):
        said = {"type": "text", "text": data["partial_text"]}
        rows.put(_row(event, index, "assistant", "text", said, status="cancelled"))
        index = 1
    failed = data["outcome"] == "failed"
    content = {
        "text": "The turn failed." if failed else "The turn was cancelled.",
        "reason": data.get("reason"),
    }
    if data.get("detail"):
        content["detail"] = data["detail"]
    kind = "error" if failed else "notification"
    rows.put(_row(event, index, "system", kind, content, status=data["outcome"]))


def _conversation_ended(rows: Rows, event: Event) -> None:
    for row in rows:
        if row["status"] == "pending":
            rows.put(row | {"status": "cancelled"})
    content = {"text": "The conversation was ended.", "reason": event.data.get("reason")}
    rows.put(_row(event, 0, "system", "notification", content))


SAID: LiteralString = (
    "case when content_type = 'text' and message_type in ('user', 'assistant') then content ->> 'text' end"
)
"""What is searched: what people and models said to each other, neither what models thought nor what tools returned."""

DISPLAY_MESSAGES = Projection(
    name="display_messages",
    version=2,
    columns={
        "seq": "int not null",
        "sequence": "int not null",
        "event_id": "uuid not null",
        "turn": "int",
        "message_type": "text not null",
        "content_type": "text not null",
        "content": "json not null",
        "status": "text not null",
        "metadata": "json not null",
        "message_id": "text",
        "tool_call_id": "text",
        "when_busy": "text",
        "occurred_at": "timestamptz not null",
    },
    key=("seq", "sequence"),
    open_while=("status", frozenset({"pending", "executing", "awaiting_input"})),
    fold=fold,
    indexes=(INDEX,),
    extra=(words_column(SAID),),
)
