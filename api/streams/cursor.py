"""Where a stream begins: after the event that the client saw last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

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


def resumed_after(request: web.Request, asked: StreamQuery) -> int:
    """Return the cursor after which a request wants to go on, 0 for the beginning; raises `InvalidRequest`."""
    seen = request.headers.get(LAST_EVENT_ID)
    if not seen:  # the standard's way to say that no event was seen
        return asked.after
    if not (seen.isascii() and seen.isdecimal() and len(seen) <= 19 and int(seen) <= MAX_POSITION):
        raise InvalidRequest([FieldError(LAST_EVENT_ID, "must be the id of an event of this stream")])
    return int(seen)
