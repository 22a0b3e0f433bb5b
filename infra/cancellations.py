"""Cancellations that somebody has swallowed: a task still counts them when a library has forgotten to pass one on."""

from __future__ import annotations

import asyncio


def cancellations() -> int:
    """Return how often the current task was asked to end; compare it with what it was before a call."""
    task = asyncio.current_task()
    return task.cancelling() if task else 0
