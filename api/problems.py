"""Errors as RFC 9457 problems: one table says what each class of error is called outside."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from aiohttp import hdrs, web
from psycopg import InterfaceError, OperationalError
from pydantic_core import to_json

from api.correlation import request_id
from api.errors import (
    BodyTooLarge,
    FieldError,
    Forbidden,
    ForeignPage,
    InvalidRequest,
    NotFound,
    Unauthenticated,
    Unready,
    UnsupportedMediaType,
)
from commands.ports import NotCaughtUp, TooManyRaces
from domain import errors
from domain.event_store import StoreError
from infra.database import DatabaseUnavailable
from projections.parked import ConversationParked
from projections.pausing import ProjectionPaused
from projections.rebuild.jobs import RebuildRunning
from projections.versions import OtherVersion, ProjectionMismatch

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:rejoinder:"
STARTED = web.RequestKey("started", bool)


class Kind(NamedTuple):
    """What an error is called outside. A fixed `detail` replaces the error's own words."""

    type: str
    status: int
    title: str
    detail: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


_ABSENT = Kind("not-found", 404, "Not found", "There is nothing here that this caller may see.")
_SOON = ((hdrs.RETRY_AFTER, "1"),)
_OUTAGE = Kind(
    "unavailable", 503, "Storage is out of reach", "The log or the database does not answer; try again.", _SOON
)
_UNEXPECTED = Kind("internal", 500, "Internal error", "Something went wrong here; the server's log says what.")

KINDS: dict[type[BaseException], Kind] = {
    # rules of a conversation
    errors.ConversationNotFound: _ABSENT,
    errors.SummaryNotFound: _ABSENT,
    errors.ConversationExists: Kind("exists", 409, "The id is taken"),
    errors.ConversationEnded: Kind("ended", 409, "The conversation has ended"),
    errors.ConversationIncomplete: Kind("incomplete", 409, "The fork is not complete yet"),
    errors.NothingToCompact: Kind("nothing-to-compact", 409, "There is nothing to summarise"),
    errors.CutsTurn: Kind("cuts-turn", 409, "A fork begins between turns"),
    errors.ConversationBusy: Kind("busy", 409, "The agent is busy"),
    errors.StaleResolution: Kind("stale", 409, "Nothing waits for this answer"),
    errors.InvalidInput: Kind("invalid", 422, "The request does not fit"),
    errors.TooLarge: Kind("too-large", 413, "Too large"),
    errors.IdempotencyMismatch: Kind("idempotency-mismatch", 422, "The idempotency key was used with another body"),
    errors.UnknownEventType: Kind(
        "unknown-event", 503, "Written by a newer version", "This server is too old for the conversation.", _SOON
    ),
    # refusals of the API
    Unauthenticated: Kind(
        "unauthenticated", 401, "No valid key", "Send Authorization: Bearer KEY.", ((hdrs.WWW_AUTHENTICATE, "Bearer"),)
    ),
    Forbidden: Kind("forbidden", 403, "Not allowed"),
    ForeignPage: Kind("foreign-page", 403, "Not from here"),
    NotFound: _ABSENT,
    web.HTTPNotFound: _ABSENT,
    web.HTTPMethodNotAllowed: Kind("method-not-allowed", 405, "No such method here", "See /openapi.json."),
    UnsupportedMediaType: Kind("unsupported-media-type", 415, "Not JSON"),
    BodyTooLarge: Kind("too-large", 413, "Too large"),
    InvalidRequest: Kind("invalid", 422, "The request does not fit"),
    web.RequestPayloadError: Kind("bad-body", 400, "The body broke off", "The body could not be read to its end."),
    # races and outages
    TooManyRaces: Kind("contended", 503, "Too many writers at once", None, _SOON),
    NotCaughtUp: Kind("behind", 503, "The read model is behind", None, _SOON),
    ProjectionPaused: Kind("paused", 503, "The read model is paused", None, _SOON),
    ConversationParked: Kind("parked", 503, "The read model has parked the conversation", None, _SOON),
    ProjectionMismatch: Kind("other-version", 409, "The read model is of another version"),
    OtherVersion: Kind("rebuilding", 503, "The read model is being rebuilt", None, _SOON),
    RebuildRunning: Kind("rebuilding", 409, "A rebuild is under way"),
    Unready: Kind("unready", 503, "Not ready", None, _SOON),
    StoreError: _OUTAGE,
    DatabaseUnavailable: _OUTAGE,
    OperationalError: _OUTAGE,
    InterfaceError: _OUTAGE,
}


@web.middleware
async def answer_problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer whatever was raised as a problem; what the table does not know is logged and answered without detail."""
    try:
        return await handler(request)
    except Exception as error:
        if STARTED in request:  # half an answer is out: only hanging up can tell
            raise
        return problem(error)


async def note_start(request: web.Request, _response: web.StreamResponse) -> None:
    """Remember that an answer began (an `on_response_prepare` signal)."""
    request[STARTED] = True


def problem(error: Exception) -> web.Response:
    """Make the answer to an error, and log those that are ours."""
    kind = _kind(error)
    detail = kind.detail or str(error)
    body: dict[str, Any] = {"type": TYPE_PREFIX + kind.type, "title": kind.title, "status": kind.status}
    if detail:
        body["detail"] = detail
    match error:
        case InvalidRequest():
            body["errors"] = [fault._asdict() for fault in error.errors]
        case errors.InvalidInput():
            body["errors"] = [FieldError(*fault)._asdict() for fault in error.faults]
    if kind.status >= 500:
        body["request_id"] = request_id()
        level, cause = (logging.ERROR, error) if kind is _UNEXPECTED else (logging.WARNING, None)
        extra = {"action": "problem", "problem": kind.type}
        logger.log(level, "%s: %s", kind.title, type(error).__name__, exc_info=cause, extra=extra)
    headers = dict(kind.headers)
    if isinstance(error, web.HTTPMethodNotAllowed):
        headers[hdrs.ALLOW] = ", ".join(sorted(error.allowed_methods))
    return web.Response(body=to_json(body), status=kind.status, content_type=MEDIA_TYPE, headers=headers)


def _kind(error: Exception) -> Kind:
    for known in type(error).__mro__:
        if kind := KINDS.get(known):
            return kind
    if isinstance(error, web.HTTPException) and error.status < 500:
        return Kind("http", error.status, HTTPStatus(error.status).phrase)
    return _UNEXPECTED
