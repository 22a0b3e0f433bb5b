"""Seconds of processors that processes and a PostgreSQL server have used: other work on the machine changes it less
than the time that passes. On Linux.
"""

from __future__ import annotations

import os
from pathlib import Path

import psycopg

_TICKS = os.sysconf("SC_CLK_TCK")


def postmaster_of(dsn: str) -> int:
    """Settle what a server on this machine has still to write, and return its process."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("checkpoint")
        row = connection.execute("select split_part(pg_read_file('postmaster.pid'), chr(10), 1)").fetchone()
    assert row is not None
    return int(row[0])


def seconds_of(process: int) -> float:
    """Return what a running process has used since it started."""
    _, own, _ = _read(Path(f"/proc/{process}"))
    return own


def server_seconds(postmaster: int) -> float:
    """Return what a server's processes have used since it started, those that have ended included."""
    total = 0.0
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            parent, own, of_ended = _read(directory)
        except (FileNotFoundError, ProcessLookupError):  # it has just ended: its parent knows what it used
            continue
        if int(directory.name) == postmaster:
            total += own + of_ended
        elif parent == postmaster:
            total += own
    return total


def _read(directory: Path) -> tuple[int, float, float]:
    """Return a process's parent, and the seconds of itself and of its children that have ended."""
    fields = (directory / "stat").read_text().rpartition(")")[2].split()
    own, of_ended = (sum(map(int, fields[n : n + 2])) / _TICKS for n in (11, 13))
    return int(fields[1]), own, of_ended
