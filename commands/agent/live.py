"""The port to people who watch: what a model says while it says it. Extra, lossy, never in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from uuid import UUID

Kind = Literal["text", "thinking"]


class LiveAt(NamedTuple):
    """Which stream of deltas: a try of an attempt at a step of a turn. The greater one takes the place of the other."""

    conversation_id: UUID
    turn: int
    step: int
    attempt: int
    try_: int


class LiveTurns(Protocol):
    """Where the runner publishes. Publishing costs next to nothing, waits for nobody and never fails the turn."""

    def restart(self, at: LiveAt) -> None:
        """Begin a try: what earlier ones of the step said is forgotten, also by those who watch."""
        ...

    def publish(self, at: LiveAt, kind: Kind, text: str) -> None:
        """Show the next piece, as it came from the model."""
        ...

    def clear(self, conversation_id: UUID) -> None:
        """Forget what this process published for the conversation: the reply was recorded, or its call stopped."""
        ...
