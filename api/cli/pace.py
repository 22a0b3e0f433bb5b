"""How fast a command goes through a log, for its progress bar."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from projections.rebuild.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable


class Pace:
    """Notes events done and in all; `look` says how far that is since the first time."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._done = self._total = 0

    def note(self, done: int, total: int) -> None:
        """Take down how far it is."""
        self._done, self._total = done, max(done, total)

    def noting(self, total: int) -> Callable[[int], None]:
        """Return what takes down how many are done of a total."""
        return lambda done: self.note(done, total)

    async def look(self) -> Progress | None:
        """Return the progress, None before there is any."""
        if not self._done:
            return None
        rate = self._done / max(time.monotonic() - self._began, 1e-3)
        return Progress(self._done, self._total, rate, (self._total - self._done) / rate)
