"""Who commands, under which id, and what a command answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uuid import UUID

    from domain.scope import Scope


@dataclass(frozen=True, slots=True)
class CommandContext:
    """A caller and the identity of his command; `keyed` says that he chose it, so that a repeat can be recognised.

    `body_hash` is a hash of the request's body: the same `command_id` with another one is refused.
    """

    scope: Scope
    command_id: UUID
    body_hash: str
    keyed: bool


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a command appended: seq and position of its last event, and the fields of its own answer."""

    conversation_id: UUID
    seq: int
    position: int
    answer: dict[str, Any] = field(default_factory=dict)
