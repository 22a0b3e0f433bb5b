"""Logs for projections: of the facts that tests speak in, and of several conversations at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from projections.testing import GivenLog, fold_whole, given_log
from tests.support.given import Fact, history, stored

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from domain.event_store import StoredEvent

__all__ = ["fold_whole", "given", "given_log", "interleaved"]


def given(*facts: Fact) -> GivenLog:
    """Begin with the log of one conversation."""
    return given_log(stored(event) for event in history(*facts))


def interleaved(logs: Sequence[Sequence[StoredEvent]], chance: random.Random) -> list[StoredEvent]:
    """Merge the logs of several conversations into one, at random, with positions 1, 2, 3 …"""
    queues = [list(log) for log in logs if log]
    merged: list[StoredEvent] = []
    while queues:
        queue = chance.choice(queues)
        merged.append(replace(queue.pop(0), position=len(merged) + 1))
        queues = [queue for queue in queues if queue]
    return merged
