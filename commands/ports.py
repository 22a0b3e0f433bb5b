"""What the write side needs from outside: the time, receipts of older commands, a way to wake a worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID


class Clock(Protocol):
    """The one clock of the whole system."""

    def now(self) -> datetime:
        """Return the time, UTC and aware."""
        ...


@dataclass(frozen=True, slots=True)
class KnownCommand:
    """A command that was accepted before: what its events say of it."""

    conversation_id: UUID
    seq: int
    position: int
    body_hash: str
    answer: dict[str, Any]


class Receipts(Protocol):
    """The commands that were accepted before, as the read model `commands` knows them."""

    async def find(self, command_id: UUID, *, up_to_position: int) -> KnownCommand | None:
        """Return the command of this id; raises `NotCaughtUp` if none is known and that position isn't reached yet."""
        ...


class NotCaughtUp(Exception):
    """A read model has not come as far as an answer needs; try again shortly."""


class TooManyRaces(Exception):
    """Others appended to the conversation each time that this command was about to; try again shortly."""


class Waker(Protocol):
    """A hint to workers, for speed; nothing depends on its arrival."""

    async def wake(self, conversation_id: UUID) -> None:
        """Tell the workers that a conversation owes something now; never raises."""
        ...


class Partials(Protocol):
    """What a reply that is being streamed has said so far."""

    async def partial_text(self, conversation_id: UUID) -> str | None:
        """Return the text of the reply that is being written, None where none is."""
        ...
