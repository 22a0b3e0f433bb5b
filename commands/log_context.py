"""The ids that log lines carry: of the conversation, turn or request that the current task works for."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_IDS: ContextVar[Mapping[str, str | int]] = ContextVar("logged_ids")


def log_with(**ids: str | int) -> None:
    """Let every line that this task, and tasks that it starts from now on, log carry these ids too."""
    _IDS.set({**logged_ids(), **ids})


def logged_ids() -> Mapping[str, str | int]:
    """Return the ids of the current task."""
    return _IDS.get({})
