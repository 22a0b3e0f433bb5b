"""The ports to what tells a worker where to look: the agenda, its claims, and hints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection
    from datetime import datetime
    from uuid import UUID


@dataclass(frozen=True, slots=True)
class Claim:
    """A conversation that this worker holds. `takeover`: its former holder never handed it back.

    `strikes` says how often in a row that was so, `seq` how much of the log the agenda knew.
    """

    conversation_id: UUID
    token: UUID
    takeover: bool
    strikes: int = 0
    seq: int = 0


class AgendaUnavailable(Exception):
    """The agenda cannot be reached; whatever was asked may or may not have happened."""


class Agenda(Protocol):
    """Which conversations owe something, and who holds them. Claims only save work: the log decides what is true.

    Every method but `hints` may raise `AgendaUnavailable`.
    """

    async def claim(self, limit: int) -> list[Claim]:
        """Claim up to `limit` conversations that are due."""
        ...

    async def claim_expired(self, limit: int) -> list[Claim]:
        """Claim up to `limit` conversations that are due because a deadline has passed."""
        ...

    async def claim_hinted(self, conversation_id: UUID) -> Claim | None:
        """Claim this conversation, known to be due or not, unless another's claim is live."""
        ...

    async def extend(self, claims: Collection[Claim]) -> set[UUID]:
        """Renew these claims' leases; returns the conversations that are still held."""
        ...

    async def finish(self, claim: Claim, seq: int, due_at: datetime | None) -> bool:
        """Hand back: at `seq` of the log nothing is due before `due_at` (None: nothing at all).

        It is looked at then, but never at once: clocks differ. False when newer events have been folded meanwhile
        (look again) or the claim was lost.
        """
        ...

    async def release(self, claim: Claim, *, pause_s: float, failed: bool) -> None:
        """Let go unfinished, not to be claimed before `pause_s`, longer after take-overs in a row.

        `failed` makes the next claim a take-over.
        """
        ...

    async def due_in(self) -> float | None:
        """Return the seconds until something is due, None when nothing is."""
        ...

    async def sweep(self) -> None:
        """Forget conversations that owe nothing."""
        ...

    def hints(self) -> AsyncGenerator[UUID | None, None]:
        """Yield conversations that were just given something to do; None: look at the whole agenda."""
        ...
