"""What the stepper shows of single events: computed when looked at, and kept for a while."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from api.debugging.moment import Moment, moment
from api.debugging.steps import Step, Steps

if TYPE_CHECKING:
    from api.debugging.history import History

KEPT = 64
EVENTS = 200
"""So much of what came before is shown as context, and back to where a turn began."""


class Look(NamedTuple):
    """An event with what it changed, and everything right after it."""

    step: Step
    moment: Moment


class Looks:
    """Looks at one event after the other; going forward folds each event once."""

    def __init__(self, history: History, default_model: str) -> None:
        self._history, self._default_model = history, default_model
        self._kept: OrderedDict[int, Look] = OrderedDict()
        self._steps: Steps | None = None

    async def at(self, seq: int) -> Look:
        """Look at an event; raises `ConversationNotFound`, `InvalidInput`, `StoreError`."""
        if seq not in self._kept:
            then = await moment(self._history, seq, default_model=self._default_model, at_least=EVENTS)
            self._kept[seq] = Look(await self._step(seq), then)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(seq)
        return self._kept[seq]

    async def _step(self, seq: int) -> Step:
        steps, self._steps = self._steps, None  # not there for others, nor afterwards if this is broken off
        if steps is None or steps.seq != seq - 1:
            steps = await Steps.after(self._history, seq - 1)
        (step,) = await steps.next(1)
        self._steps = steps
        return step
