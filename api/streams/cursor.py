"""Where a stream begins: after the event that the client saw last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from api.errors import FieldError, InvalidRequest
from api.pages import MAX_POSITION, Position
from api.queries import NoParameters

if TYPE_CHECKING:
    from aiohttp import web

LAST_EVENT_ID = "Last-Event-ID"


class StreamQuery(NoParameters):
    """Begin after this cursor; the header Last-Event-ID, which browsers send when they come back, wins over it."""

    after: Position = 0


class ConversationStreamQuery(StreamQuery):
    """`view` says what is told: the log's events, or the messages that people see, each again when it changes."""

    view: Literal["events", "messages"] = "events"


class Cursor(NamedTuple):
    """What a client saw last, and the part of its request that says so."""

    seen: int
    field: str

    def within(self, newest: int) -> int:
        """Return what was seen, of a log that ends with `newest`; raises `InvalidRequest` if it has not come so far.

        It is no cursor of this log: what comes would be taken for seen, and the client would wait for ever.
        """
        if self.seen > newest:
            raise InvalidRequest([FieldError(self.field, f"is beyond the newest event, {newest}")])
        return self.seen


def cursor_of(request: web.Request, asked: StreamQuery) -> Cursor:
    """Return the cursor after which a request wants to go on, 0 for the beginning; raises `InvalidRequest`."""
    seen = request.headers.get(LAST_EVENT_ID)
    if not seen:  # the standard's way to say that no event was seen
        return Cursor(asked.after, "after")
    if not (seen.isascii() and seen.isdecimal() and len(seen) <= 19 and int(seen) <= MAX_POSITION):
        raise InvalidRequest([FieldError(LAST_EVENT_ID, "must be the id of an event of this stream")])
    return Cursor(int(seen), LAST_EVENT_ID)
