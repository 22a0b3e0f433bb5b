"""Seconds of processors that a PostgreSQL server has used: what other work on the machine hardly changes. On Linux."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def server_seconds(postmaster: int) -> float:
    """Return what a server's processes have used since it started, those that have ended included."""
    total = 0.0
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it has just ended: its parent knows what it used
            continue
        own, of_children = (sum(map(int, fields[n : n + 2])) for n in (11, 13))
        if int(directory.name) == postmaster:
            total += own + of_children
        elif int(fields[1]) == postmaster:
            total += own
    return total / _TICKS
