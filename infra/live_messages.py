"""What goes from node to node while a model speaks: one notification of the channel `live`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast
from uuid import UUID

import orjson

if TYPE_CHECKING:
    from commands.agent.live import Kind, LiveAt

CHANNEL = "live"

PIECE_CHARS = 1_100
"""A character takes at most six bytes of JSON: a message stays below 7 kB, where PostgreSQL ends at 8,000 bytes."""

Try = tuple[int, int, int, int]
"""(turn, step, attempt, try): the greater one takes the place of the other."""


@dataclass(frozen=True, slots=True)
class LiveMessage:
    """A delta, the `index`-th of its try. One without text says how far the row of `live_turns` has come.

    Index 0 begins a try.
    """

    conversation_id: UUID
    spoken_in: Try
    index: int
    kind: Kind
    text: str

    @property
    def begins(self) -> bool:
        """Whether nothing was said in its try before it."""
        return self.index == (1 if self.text else 0)

    def dump(self) -> str:
        """Write the payload."""
        return orjson.dumps({"conversation_id": self.conversation_id, **self.shown()}).decode()

    def shown(self) -> dict[str, object]:
        """Return what a client sees of it."""
        turn, step, attempt, try_ = self.spoken_in
        return {
            "turn": turn,
            "step": step,
            "attempt": attempt,
            "try": try_,
            "index": self.index,
            "kind": self.kind,
            "text": self.text,
        }


def spoken_in(at: LiveAt) -> Try:
    """Return a try without its conversation."""
    return at.turn, at.step, at.attempt, at.try_


def load_message(payload: str) -> LiveMessage | None:
    """Read a payload; None for what is not ours (the channels of a database are everybody's)."""
    try:
        said = orjson.loads(payload)
        return LiveMessage(
            UUID(said["conversation_id"]),
            (said["turn"], said["step"], said["attempt"], said["try"]),
            said["index"],
            cast("Kind", said["kind"]),
            said["text"],
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
