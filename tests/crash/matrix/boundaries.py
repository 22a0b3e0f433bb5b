"""Counting the I/O boundaries of a process, and dying at one of them."""

from __future__ import annotations

import os
import signal
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Note(Protocol):
    """Writes down what happens in a process, so that it is there when the process is not any more."""

    def __call__(self, **said: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class Crossing:
    """One thing that a process does with the outside; `name` is its kind and number, such as ``append#3``."""

    name: str
    _reach: Callable[..., None]
    _kill_at: str | None

    def at(self, moment: str, **detail: Any) -> None:
        """Note that it has come so far, and die if that is the place."""
        self._reach(f"{self.name}:{moment}", **detail)

    def dies(self, moment: str) -> bool:
        """Say whether it will die at this moment."""
        return f"{self.name}:{moment}" == self._kill_at


class Boundaries:
    """Numbers the crossings of a process by kind: 1, 2, 3 …"""

    def __init__(self, note: Note, kill_at: str | None) -> None:
        self.note = note
        self._kill_at = kill_at
        self._numbers: Counter[str] = Counter()

    def next(self, kind: str) -> Crossing:
        """Begin the next crossing of a kind."""
        self._numbers[kind] += 1
        return Crossing(f"{kind}#{self._numbers[kind]}", self._reach, self._kill_at)

    def _reach(self, label: str, **detail: Any) -> None:
        self.note(at=label, **detail)
        if label == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
