"""What the double does wrong when a test asks for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Call: TypeAlias = Literal["append", "delete", "read", "subscribe", "gossip"]
Kind: TypeAlias = Literal["before", "after", "delay", "not_ready", "not_leader"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong in one call.

    `before`: a gRPC error of this `status` before anything is done. `after`: the same when all is done, or, for a read
    and a subscription, after so many `responses`. `delay`: `seconds` pass before anything is done (an append is
    answered with a timeout after two, and written all the same). `not_ready`, `not_leader`: as the server says it.
    """

    call: Call
    kind: Kind
    status: str = "UNAVAILABLE"
    seconds: float = 0
    responses: int = 0


class Faults:
    """The faults to come, taken in order, one by each call that they name."""

    def __init__(self) -> None:
        self._coming: list[Fault] = []
        self.hurried = asyncio.Event()
        """Set it, and delayed appends are delayed no longer."""

    def add(self, fault: Fault, count: int = 1) -> None:
        """Let the next `count` calls of the fault's kind suffer it."""
        self._coming += [fault] * count

    def take(self, call: Call) -> Fault | None:
        """Return what this call shall suffer."""
        fault = next((one for one in self._coming if one.call == call), None)
        if fault is not None:
            self._coming.remove(fault)
        return fault

    def left(self) -> Sequence[Fault]:
        """Return those that no call has suffered yet."""
        return tuple(self._coming)

    def clear(self) -> None:
        """Forget those that are left."""
        self._coming.clear()
