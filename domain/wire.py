"""Between events and what a store holds: explicit JSON, metadata with its ids, upcasts of older shapes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pydantic_core import from_json

from domain.errors import UnknownEventType
from domain.event_store import NewEvent, StoredEvent
from domain.events import EVENT_TYPES
from domain.summary_events import SUMMARY_EVENT_TYPES
from domain.text import clean
from domain.upcasts import upcast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from domain.event_envelope import ConversationEvent

STREAM, SUMMARY_STREAM = "conversation-", "summary-"
PREFIXES = (STREAM, SUMMARY_STREAM)
"""How the names of all streams begin that belong to a conversation."""
TYPES = {STREAM: EVENT_TYPES, SUMMARY_STREAM: SUMMARY_EVENT_TYPES}
"""What each kind of stream holds."""
ALL_TYPES = EVENT_TYPES | SUMMARY_EVENT_TYPES


def stream_of(conversation_id: UUID) -> str:
    """Name the stream of a conversation."""
    return f"{STREAM}{conversation_id}"


def summary_stream_of(conversation_id: UUID) -> str:
    """Name the sibling stream of a conversation, which holds its summaries."""
    return f"{SUMMARY_STREAM}{conversation_id}"


def conversation_of(stream: str) -> UUID | None:
    """Return the conversation whose own stream this is, None for any other stream."""
    kind, conversation_id = kind_of(stream)
    return conversation_id if kind == STREAM else None


def kind_of(stream: str) -> tuple[str, UUID | None]:
    """Return how the stream's name begins, one of `PREFIXES`, and whose it is; None for streams of nobody."""
    for prefix in PREFIXES:
        if stream.startswith(prefix):
            try:
                return prefix, UUID(stream[len(prefix) :])
            except ValueError:
                break
    return "", None


@dataclass(frozen=True, slots=True)
class CommandMark:
    """What a command leaves in the metadata of its events so that its repeat is recognised and answered alike."""

    command_id: UUID
    body_hash: str
    receipt: Mapping[str, Any]


def dumps(value: Any) -> str:
    """Write JSON as the log holds it: compact, UTF-8 kept, non-finite numbers refused."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def encode(event: ConversationEvent, mark: CommandMark | None = None) -> NewEvent:
    """Make the record that a store appends for an event."""
    metadata: dict[str, Any] = {
        "event_id": str(event.event_id),
        "occurred_at": event.timestamp.isoformat(),
        "correlation_id": str(event.correlation_id or event.event_id),
        "causation_id": str(event.causation_id) if event.causation_id else None,
        "actor": clean(event.actor),
        "schema_version": event.schema_version,
    }
    if mark is not None:
        metadata |= {
            "command_id": str(mark.command_id),
            "body_hash": mark.body_hash,
            "receipt": clean(mark.receipt),
        }
    if event.copied_from is not None:
        metadata["copied_from"] = str(event.copied_from)
    data = event.model_dump(mode="json", exclude_none=True)
    return NewEvent(event.event_id, event.wire_type, dumps(data), dumps(metadata))


def decode(stored: StoredEvent) -> ConversationEvent:
    """Make the event of a stored record; raises `UnknownEventType` for a type that this code does not know."""
    kind, conversation_id = kind_of(stored.stream)
    if conversation_id is None or stored.type not in TYPES[kind]:
        raise UnknownEventType(f"{stored.type} at position {stored.position}")
    metadata = from_json(stored.metadata)
    data = upcast(stored.type, metadata.get("schema_version", 1), from_json(stored.data))
    return decode_parsed(stored, conversation_id, data, metadata)


def decode_parsed(
    stored: StoredEvent, conversation_id: UUID, data: Mapping[str, Any], metadata: Mapping[str, Any]
) -> ConversationEvent:
    """Make the event of a stored record whose data, in their newest shape, were parsed before.

    Raises `UnknownEventType` as `decode` does.
    """
    if (event_type := ALL_TYPES.get(stored.type)) is None:
        raise UnknownEventType(f"{stored.type} at position {stored.position}")
    return event_type.model_validate(
        {
            **data,
            "originator_id": conversation_id,
            "originator_version": stored.seq,
            "timestamp": metadata["occurred_at"],
            "event_id": stored.event_id,
            "correlation_id": metadata.get("correlation_id"),
            "causation_id": metadata.get("causation_id"),
            "actor": metadata["actor"],
            "copied_from": metadata.get("copied_from"),
        }
    )
