"""Exported files for tests: logs of random conversations, and files made of lines."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from api.transfer.writer import ExportWriter
from tests.support.random_log import random_log, with_summaries

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from domain.event_store import StoredEvent

LOG_ID = UUID(int=7)


def some_logs(seed: int, *, conversations: int = 2, steps: int = 20) -> list[StoredEvent]:
    """Make the logs of random conversations with summaries, one after the other, at positions with gaps."""
    chance = random.Random(seed)
    log: list[StoredEvent] = []
    for _ in range(conversations):
        log += with_summaries(random_log(chance, steps=steps), chance)
    return [replace(event, position=3 * n) for n, event in enumerate(log, 1)]


def exported(path: Path, log: Iterable[StoredEvent]) -> Path:
    """Write a file of a log that stands by conversations; return its path."""
    with path.open("wb") as file:
        writer = ExportWriter(file, LOG_ID)
        for event in log:
            writer.write(event)
        writer.finish()
    return path
