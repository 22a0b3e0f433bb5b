"""The tools of a server that was given none: one of each kind, for a newcomer to see them at work."""

from __future__ import annotations

import fcntl
import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from domain.tools import ToolContext, as_tool, tool

if TYPE_CHECKING:
    from pathlib import Path

    from domain.tools import Tool

OUTBOX = "outbox.jsonl"


def demo_tools(data_dir: Path) -> list[Tool]:
    """Return the demo tools; `send_email` writes to ``outbox.jsonl`` in this directory, which is made when needed."""

    @tool(gate="always")
    def send_email(ctx: ToolContext, to: str, body: str) -> str:
        """Send an email to a person.

        Args:
            to: The address of the receiver.
            body: The text of the email.
        """
        record_once(data_dir / OUTBOX, {"id": ctx.tool_call_id, "to": to, "body": body})
        return f"The email to {to} is in the outbox."

    return [as_tool(function) for function in (current_time, send_email, ask_user, get_location)]


def current_time() -> str:
    """Tell the current date and time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@tool(executor="human")
def ask_user(question: str) -> str:  # type: ignore[empty-body]  # a person answers
    """Ask the person a question; their answer is the result.

    Args:
        question: What they are asked.
    """


@tool(executor="client")
def get_location() -> dict[str, float]:  # type: ignore[empty-body]  # the client answers
    """Find out where the person is, from their browser or app: latitude and longitude in degrees."""


def record_once(path: Path, entry: dict[str, Any]) -> None:
    """Append an entry as a line of JSON, durably, unless one of its ``id`` is there; safe between processes.

    A line that a killed process left unfinished is dropped first: its call runs again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        lines = file.read().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            file.truncate(sum(map(len, lines[:-1])))
            del lines[-1]
        if any(json.loads(line)["id"] == entry["id"] for line in lines):
            return
        file.write(json.dumps(entry).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
