"""Picks the client that is installed, esdbclient or its successor kurrentdbclient, and gives both the same names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

# gRPC's core writes of each lost connection to stderr, beside the log; what there is to say we say ourselves.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc.aio

from infra.eventstoredb_uri import parse_uri

try:
    from esdbclient import AsyncEventStoreDBClient as Client
    from esdbclient import NewEvent, RecordedEvent, StreamState
    from esdbclient.exceptions import (
        AccessDeniedError,
        BadRequestError,
        MaximumAppendSizeExceededError,
    )
    from esdbclient.exceptions import DeadlineExceeded as DeadlineExceededError
    from esdbclient.exceptions import EventStoreDBClientException as ClientError
    from esdbclient.exceptions import NodeIsNotLeader as NodeIsNotLeaderError
    from esdbclient.exceptions import NotFound as NotFoundError
    from esdbclient.exceptions import ServiceUnavailable as ServiceUnavailableError
    from esdbclient.exceptions import StreamIsDeleted as StreamIsDeletedError
    from esdbclient.exceptions import WrongCurrentVersion as WrongCurrentVersionError

    RefusedErrors: tuple[type[Exception], ...] = (AccessDeniedError,)
except ModuleNotFoundError:
    from kurrentdbclient import AsyncKurrentDBClient as Client  # type: ignore[no-redef, unused-ignore]  # the other one
    from kurrentdbclient import NewEvent, RecordedEvent, StreamState  # type: ignore[no-redef, unused-ignore]  # as above
    from kurrentdbclient.exceptions import (  # type: ignore[no-redef, unused-ignore]  # as above
        AccessDeniedError,
        BadRequestError,
        DeadlineExceededError,
        MaximumAppendSizeExceededError,
        NodeIsNotLeaderError,
        NotFoundError,
        ServiceUnavailableError,
        StreamIsDeletedError,
        UnauthenticatedError,
        WrongCurrentVersionError,
    )
    from kurrentdbclient.exceptions import KurrentDBClientError as ClientError  # type: ignore[no-redef, unused-ignore]  # as above

    RefusedErrors = (AccessDeniedError, UnauthenticatedError)

if TYPE_CHECKING:
    from collections.abc import AsyncIterable

__all__ = [
    "BadRequestError", "Client", "ClientError", "DeadlineExceededError", "MaximumAppendSizeExceededError", "NewEvent",
    "NodeIsNotLeaderError", "NotFoundError", "RecordedEvent", "RefusedErrors", "ServiceUnavailableError",
    "StreamIsDeletedError", "StreamState", "WrongCurrentVersionError", "in_time", "new_client", "whole",
]  # fmt: skip

CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
"""A peer that fell silent is noticed in 10 s, also behind an idle subscription; one that is back, in about a second.

The keep-alive interval of a connection string comes to nothing in esdbclient, which misspells its name.
"""


class Interrupted(Exception):
    """A call was ended by its own client, which reconnects under all calls when one of them fails."""


def new_client(uri: str) -> Client:
    """Make a client with a channel of its own; it connects later. Raises `ValueError` for a bad connection string."""
    address = parse_uri(uri)
    try:
        client = Client(address.uri)
    except (OSError, ValueError):
        raise ValueError("names a file that cannot be read, or an option that the client does not take") from None
    # the clients send user and password as they are written in the string, percent signs and all
    client._call_credentials = client.construct_call_credentials(address.user, address.password)
    client.grpc_options += tuple(option for option in CHANNEL_OPTIONS if option not in client.grpc_options)
    return client


async def in_time(response: AsyncIterable[RecordedEvent]) -> tuple[list[RecordedEvent], bool]:
    """Return what a read gives until its deadline, and whether that is all.

    Raises `Interrupted` where the client would pass off a part as the whole: a call that was cancelled, by the client's
    reconnecting or with our task, looks like one that came to its end.
    """
    events: list[RecordedEvent] = []
    try:
        async for event in response:
            events.append(event)
    except DeadlineExceededError:
        return events, False
    call = getattr(response, "aio_call", None) or getattr(response, "_unary_stream_call", None)
    if not isinstance(call, grpc.aio.Call) or await call.code() is not grpc.StatusCode.OK:
        raise Interrupted("the connection was lost while reading")
    return events, True


async def whole(response: AsyncIterable[RecordedEvent]) -> list[RecordedEvent]:
    """Return all that a read gives; raises `Interrupted` if it cannot be had in time."""
    events, ended = await in_time(response)
    if not ended:
        raise Interrupted("the server does not answer in time")
    return events
