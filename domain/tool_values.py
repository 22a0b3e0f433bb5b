"""What enters the log from tools and from those who answer them: JSON of bounded size and depth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic_core import to_jsonable_python

from domain.event_store import MAX_EVENT_BYTES
from domain.text import clean
from domain.wire import dumps

MAX_VALUE_BYTES = MAX_EVENT_BYTES - 128 * 1024
"""The JSON of arguments and answers may be this large; a `tool_call` or `resolution` with it fits in one event."""
MAX_DEPTH = 100
MAX_VALUES = 1_000_000
_CONTAINERS = (dict, list, tuple, set, frozenset)
_WALKED = (*_CONTAINERS, Iterator)


class NotStorable(ValueError):
    """A value cannot enter the log; the message says why and does not repeat it."""


def as_json(value: Any, max_bytes: int | None = MAX_VALUE_BYTES) -> Any:
    """Return `value` as cleaned JSON types (models and dataclasses become objects, times strings).

    Raises `NotStorable` for what is no JSON, holds itself, is nested deeper than `MAX_DEPTH`, has more than
    `MAX_VALUES` or is larger than `max_bytes` of text.
    """
    _check_shape(value)
    try:
        plain = clean(_plain(value))
    except (ValueError, RecursionError) as exc:
        raise NotStorable(f"is no JSON or nested deeper than {MAX_DEPTH} levels ({type(exc).__name__})") from exc
    _check_shape(plain)
    if max_bytes is not None and (size := len(dumps(plain).encode())) > max_bytes:
        raise NotStorable(f"is larger than {max_bytes // 1024} KiB ({size:,} bytes of JSON)")
    return plain


def _plain(value: Any) -> Any:
    try:
        return to_jsonable_python(value)
    except UnicodeEncodeError:  # the key of a dict has a lone surrogate, which pydantic does not take there
        return to_jsonable_python(clean(value))


def _check_shape(value: Any) -> None:
    """Refuse at once what would take for ever to write: a list that holds itself, an iterator without an end."""
    left = MAX_VALUES
    waiting = [(value, 0)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, Iterator):
            raise NotStorable("is an iterator; it has to be a list")
        if not isinstance(item, _CONTAINERS):
            continue
        if depth == MAX_DEPTH:
            raise NotStorable(f"is nested deeper than {MAX_DEPTH} levels, or holds itself")
        left -= len(item)
        if left < 0:
            raise NotStorable(f"has more than {MAX_VALUES:,} values")
        children = item.values() if isinstance(item, dict) else item
        waiting += [(child, depth + 1) for child in children if isinstance(child, _WALKED)]
