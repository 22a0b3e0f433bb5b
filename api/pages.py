"""What lists and other queries are asked with, and what a page of a list is."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, Field

from api.queries import NoParameters

Item = TypeVar("Item")

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


class PageOf(BaseModel, Generic[Item]):
    """Some items of a list; `next_cursor` is where the next ones begin, null after the last."""

    items: list[Item]
    next_cursor: str | None
