"""Lists in pages: their parameters, and cursors that say where the next page begins."""

from __future__ import annotations

import base64
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from api.errors import FieldError, InvalidRequest
from api.queries import NoParameters

Key = TypeVar("Key")

MAX_POSITION = 2**63 - 1
Position = Annotated[int, Field(ge=0, le=MAX_POSITION)]
"""A seq or a position of the log."""
Limit = Annotated[int, Field(ge=1, le=200)]


class Freshness(NoParameters):
    """How new an answer must be: wait for this position, at most so many milliseconds."""

    min_position: Position | None = None
    wait_ms: Annotated[int, Field(ge=0, le=30_000)] = 2000


class PageQuery(Freshness):
    """One page of a list: what follows on `cursor`, which is the `next_cursor` of the page before."""

    cursor: Annotated[str, Field(max_length=1000)] | None = None
    limit: Limit = 50


def cursor_of(*key: Any) -> str:
    """Make the opaque cursor of a place in a list: the values that it is ordered by."""
    return base64.urlsafe_b64encode(to_json(key)).decode().rstrip("=")


def place_of(cursor: str | None, key: TypeAdapter[Key]) -> Key | None:
    """Return the place that a cursor means, None for the beginning. Raises `InvalidRequest`."""
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return key.validate_json(base64.b64decode(padded, altchars=b"-_", validate=True), strict=True)
    except (ValidationError, ValueError):  # binascii.Error is one, text that is not ASCII gives one
        raise InvalidRequest([FieldError("cursor", "is not a next_cursor of this list")]) from None
