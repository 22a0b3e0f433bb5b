"""What a command line asks for, to be run by `api.main`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from infra.settings import Settings


@dataclass(frozen=True, slots=True)
class Job:
    """A coroutine function to run under the settings; it returns the exit code."""

    run: Callable[[Settings], Coroutine[None, None, int]]
    overrides: Mapping[str, object] = field(default_factory=dict)
    """Settings that the command line gave, by field name; None: not given."""
    serves: bool = False
    """Logs as the settings say; others log only what is wrong."""
