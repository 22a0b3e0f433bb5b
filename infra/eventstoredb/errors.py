"""What the errors of the client mean: answers, losses that may pass by themselves, and what does not pass."""

from __future__ import annotations

import re

import grpc
import grpc.aio

from domain.event_store import StoreError
from infra.eventstoredb.clients import (
    BadRequestError,
    ClientError,
    Interrupted,
    MaximumAppendSizeExceededError,
    NotFoundError,
    RefusedErrors,
    StreamIsDeletedError,
    WrongCurrentVersionError,
)

ANSWERS = (
    BadRequestError, MaximumAppendSizeExceededError, NotFoundError, StreamIsDeletedError, WrongCurrentVersionError,
)  # fmt: skip
"""What the server says of a request; any other error leaves open what became of it."""
LOSSES = (ClientError, Interrupted, grpc.aio.UsageError, OSError)
REFUSALS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


class InvalidPosition(Exception):
    """No event of the log begins at the position that a read was to start from."""


def passing_reason(error: Exception) -> str:
    """Return what is the matter, for as long as it may pass by itself; raise what it means otherwise."""
    call = _failed_call(error)
    if isinstance(error, RefusedErrors) or (call and call.code() in REFUSALS):
        raise StoreError("EventStoreDB refuses the user or the password, or what the user may do") from error
    if re.search(r"invalid ?(commit ?)?position", f"{type(error).__name__} {error}", re.IGNORECASE):
        raise InvalidPosition from error
    reason = in_short(error)
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        raise StoreError("EventStoreDB's certificate is not trusted: name its authority by tlscafile") from error
    return reason


def in_short(error: Exception) -> str:
    """Return what an error says in one line, without the text of gRPC's own wrapping."""
    call = _failed_call(error)
    text = (call.details() or call.code().name) if call else str(error)
    return " ".join(text.split())[:300] or type(error).__name__


def _failed_call(error: Exception) -> grpc.aio.AioRpcError | None:
    """Return the gRPC call that a client's error wraps, if it does."""
    cause = error.args[0] if error.args else None
    return cause if isinstance(cause, grpc.aio.AioRpcError) else None
