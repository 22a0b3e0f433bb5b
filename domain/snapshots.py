"""The open state of a conversation as JSON and back: what read models keep of it, never what decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter

from domain.conversation import Conversation
from domain.conversation_state import OpenCall, OpenTurn, WaitingMessage


@dataclass(slots=True)
class _Snapshot:
    tenant: str
    owner: str
    settings: dict[str, Any]
    settings_seq: int
    metadata: dict[str, Any]
    turns: int
    turn: OpenTurn | None
    calls: dict[str, OpenCall]
    waiting: dict[str, WaitingMessage]
    ended: bool
    copying: bool
    spent_usd: float = 0.0


_ADAPTER = TypeAdapter(_Snapshot)
_FIELDS = tuple(_Snapshot.__dataclass_fields__)


def dump(conversation: Conversation) -> dict[str, Any]:
    """Return the state as JSON's types; the key ``seq`` says after which event."""
    state = _Snapshot(**{name: getattr(conversation, name) for name in _FIELDS})
    dumped: dict[str, Any] = _ADAPTER.dump_python(state, mode="json")
    return {"seq": conversation.version, **dumped}


def restore(conversation_id: UUID, dumped: dict[str, Any]) -> Conversation:
    """Return the conversation of a `dump`, ready to fold the events after it."""
    conversation = Conversation.at(conversation_id, dumped["seq"])
    state = _ADAPTER.validate_python(dumped)
    for name in _FIELDS:
        setattr(conversation, name, getattr(state, name))
    return conversation
