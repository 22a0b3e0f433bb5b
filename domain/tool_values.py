"""What enters the log from tools and from those who answer them: JSON of bounded size and depth."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_jsonable_python

from domain.event_store import MAX_EVENT_BYTES
from domain.text import clean
from domain.wire import dumps

MAX_VALUE_BYTES = MAX_EVENT_BYTES - 128 * 1024
"""The JSON of arguments and answers may be this large; a `tool_call` or `resolution` with it fits in one event."""
MAX_DEPTH = 100


class NotStorable(ValueError):
    """A value cannot enter the log; the message says why and does not repeat it."""


def as_json(value: Any, max_bytes: int | None = MAX_VALUE_BYTES) -> Any:
    """Return `value` as cleaned JSON types (models and dataclasses become objects, times strings).

    Raises `NotStorable` for what is no JSON, nested deeper than `MAX_DEPTH` or larger than `max_bytes` of text.
    """
    try:
        plain = clean(_plain(value))
    except (ValueError, RecursionError) as exc:
        raise NotStorable(f"is no JSON or nested deeper than {MAX_DEPTH} levels ({type(exc).__name__})") from exc
    if _deeper_than(MAX_DEPTH, plain):
        raise NotStorable(f"is nested deeper than {MAX_DEPTH} levels")
    if max_bytes is not None and (size := len(dumps(plain).encode())) > max_bytes:
        raise NotStorable(f"is larger than {max_bytes // 1024} KiB ({size:,} bytes of JSON)")
    return plain


def _plain(value: Any) -> Any:
    try:
        return to_jsonable_python(value)
    except UnicodeEncodeError:  # the key of a dict has a lone surrogate, which pydantic does not take there
        return to_jsonable_python(clean(value))


def _deeper_than(depth: int, value: Any) -> bool:
    if not isinstance(value, dict | list):
        return False
    children = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_deeper_than(depth - 1, child) for child in children)
