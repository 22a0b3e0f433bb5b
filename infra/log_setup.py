"""Logging: plain sentences with ids for people, or one JSON object a line for machines, to standard error."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

from commands.log_context import logged_ids

LIBRARIES = ("aiohttp", "asyncio", "httpcore", "httpx", "LiteLLM", "openai", "psycopg")
"""Whose lines below WARNING hold what people and models say."""

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logging(log_format: Literal["text", "json"], level: str) -> None:
    """Send all lines from `level` on to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for library in LIBRARIES:
        logging.getLogger(library).setLevel(max(root.level, logging.WARNING))
    logging.captureWarnings(True)


class TextLines(logging.Formatter):
    """Time, level, sentence, and the ids of what was worked for."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Return the time in UTC, to the millisecond."""
        return _time(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line without its traceback."""
        ids = " ".join(f"{name}={value}" for name, value in logged_ids().items())
        return super().formatMessage(record) + (f" [{ids}]" if ids else "")


class JsonLines(logging.Formatter):
    """``{"time", "level", "logger", "message", …}`` with the ids, the action and what else a line was given."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **logged_ids(),
            **{name: value for name, value in vars(record).items() if name not in _OWN},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
