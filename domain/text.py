"""The one place where text becomes storable: what people, models and tools produce may be anything."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel

REPLACEMENT = "\ufffd"
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean(value: Any) -> Any:
    """Return `value` (anything made of JSON's types) with what no store takes replaced, keys included.

    U+0000 and lone surrogates become U+FFFD, non-finite numbers their names as strings (``"NaN"``, ``"Infinity"``);
    tuples and sets become lists, models their fields, and what JSON does not know its `str`. Times and UUIDs stay.
    """
    match value:
        case str():
            return _UNSTORABLE.sub(REPLACEMENT, value) if not value.isascii() or "\x00" in value else value
        case float():
            return value if math.isfinite(value) else _name_of(value)
        case None | bool() | int() | datetime() | UUID():
            return value
        case BaseModel():
            return clean(value.model_dump(exclude_none=True))
        case dict():
            return {clean(key if isinstance(key, str) else str(key)): clean(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [clean(item) for item in value]
        case _:
            return clean(str(value))


def _name_of(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def truncated(text: str, max_bytes: int, *, note: str = "truncated") -> str:
    """Return `text` cut to at most `max_bytes` of UTF-8, ending in a stub that says how much was left out."""
    encoded = text.encode()
    if len(encoded) <= max_bytes:
        return text
    stub = f"\n[{note}: {len(encoded):,} bytes in all]"
    kept = encoded[: max(0, max_bytes - len(stub))].decode(errors="ignore")
    return kept + stub
