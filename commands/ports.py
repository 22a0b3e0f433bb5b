"""What the write side needs from outside: the time, receipts of older commands, a way to wake a worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from domain.conversation import Conversation


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

    async def find(self, conversation_id: UUID, command_id: UUID, *, up_to_position: int) -> KnownCommand | None:
        """Return the command of this id.

        Raises `NotCaughtUp` if none is known and the conversation is not read up to that position yet.
        """
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


@dataclass(frozen=True, slots=True)
class Partial:
    """What the reply of a step has said so far, while it is being streamed."""

    turn: int
    step: int
    text: str

    def of(self, conversation: Conversation) -> str | None:
        """Return the text if it is the reply that the conversation's open turn still lacks."""
        turn = conversation.turn
        return self.text if turn and (turn.number, turn.step + 1) == (self.turn, self.step) else None


NOTHING_SAID = Partial(0, 0, "")


class Partials(Protocol):
    """What replies that are being streamed have said so far, in whatever process."""

    async def partial(self, conversation_id: UUID) -> Partial:
        """Return the newest partial reply of a conversation, `NOTHING_SAID` where none is known."""
        ...
