"""Pages of lists: limits, and opaque cursors that say where a page ended."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from domain.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 200


@dataclass(frozen=True, slots=True)
class Page:
    """Some items of a list, and the cursor of the next ones (None: these are the last)."""

    items: list[dict[str, Any]]
    next_cursor: str | int | None

    @classmethod
    def of(cls, found: list[dict[str, Any]], limit: int, cursor: Callable[[dict[str, Any]], str]) -> Page:
        """Make a page of at most `limit` items that were `found`, one of which may be too many."""
        items = found[:limit]
        return cls(items, cursor(items[-1]) if len(found) > limit else None)


def checked_limit(limit: int) -> int:
    """Return the limit; raises `InvalidInput` if it is not of 1 to 200."""
    if not 1 <= limit <= MOST:
        raise InvalidInput("limit", f"must be from 1 to {MOST}")
    return limit


def encode_cursor(*values: str | int) -> str:
    """Make a cursor of the values by which a list is ordered."""
    return urlsafe_b64encode(json.dumps(values, separators=(",", ":")).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, *readers: Callable[[Any], Any]) -> list[Any]:
    """Return a cursor's values, each by its reader; raises `InvalidInput` for what `encode_cursor` did not make."""
    try:
        values = json.loads(urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)))
        return [read(value) for read, value in zip(readers, values, strict=True)]
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise InvalidInput("cursor", "is none that this list gave; begin again without it") from None


def read_time(text: str) -> datetime:
    """Read a time of a cursor; raises `ValueError`."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("a time without a zone")
    return time


def read_seq(value: Any) -> int:
    """Read a seq of a cursor; raises `ValueError` for what no seq can be."""
    if type(value) is not int or not 0 <= value < 2**31:
        raise ValueError("not a seq")
    return value
