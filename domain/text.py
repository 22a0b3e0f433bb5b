"""The one place where text becomes storable: what people, models and tools produce may be anything."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel

REPLACEMENT = "\ufffd"
MAX_DEPTH = 100
"""How deep values may be nested: parsers give up at depths of their own (128, 200, …), and a log must always load."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_TOO_DEEP = f"[nested deeper than {MAX_DEPTH} levels]"


def clean(value: Any, depth: int = 0) -> Any:
    """Return `value` (anything made of JSON's types) with what no store takes replaced, keys included.

    U+0000 and lone surrogates become U+FFFD, non-finite numbers their names as strings (``"NaN"``, ``"Infinity"``),
    integers beyond 64 bits their digits, what is nested deeper than `MAX_DEPTH` a stub; tuples and sets become lists,
    models their fields, and what JSON does not know its `str`. Times and UUIDs stay.
    """
    match value:
        case str():
            return _UNSTORABLE.sub(REPLACEMENT, value) if not value.isascii() or "\x00" in value else value
        case float():
            return value if math.isfinite(value) else _name_of(value)
        case None | bool() | datetime() | UUID():
            return value
        case int():
            return value if value.bit_length() < 64 else _digits_of(value)
        case BaseModel():
            return clean({name: item for name, item in value if item is not None}, depth)
        case dict() | list() | tuple() | set() | frozenset() if depth == MAX_DEPTH:
            return _TOO_DEEP
        case dict():
            return {
                clean(key if isinstance(key, str) else str(key)): clean(item, depth + 1) for key, item in value.items()
            }
        case list() | tuple() | set() | frozenset():
            return [clean(item, depth + 1) for item in value]
        case _:
            return clean(str(value))


def _digits_of(number: int) -> str:
    return str(number) if number.bit_length() < 10_000 else hex(number)  # str refuses more than 4,300 digits


def _name_of(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def truncated(text: str, max_bytes: int, *, note: str = "truncated") -> str:
    """Return `text`, cleaned, cut to at most `max_bytes` of JSON; a stub at its end then says how much there was."""
    text = clean(text)
    size = _json_bytes(text)
    if size <= max_bytes:
        return text
    stub = f"\n[{note}: {size:,} bytes in all]"
    room = max_bytes - _json_bytes(stub)
    fitting = bisect_right(range(min(len(text), max_bytes)), room, key=lambda length: _json_bytes(text[:length]))
    return text[: max(0, fitting - 1)] + stub


def _json_bytes(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode())
