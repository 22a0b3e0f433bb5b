"""The errors of the double, worded and packed as the server does it (`RpcExceptions`, `Status`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf import empty_pb2

from tests.support.eventstoredb.log import ANY, EXISTS, NO_STREAM
from tests.support.eventstoredb.stubs import shared_pb2, streams_pb2

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from tests.support.eventstoredb.log import WrongVersion

INVALID, NOT_FOUND, ALREADY, DENIED, UNKNOWN_CODE = 3, 5, 6, 7, 2
"""Codes of `google.rpc.Status`, inside of an answer."""


class Refused(Exception):
    """A call ends with a gRPC error: the name of its status code, its text, and its trailing metadata."""

    def __init__(self, status: str, details: str, *trailers: tuple[str, str]) -> None:
        super().__init__(f"{status}: {details}")
        self.status, self.details, self.trailers = status, details, trailers


def stream_deleted(stream: str) -> Refused:
    """A tombstone is in the way."""
    trailers = ("exception", "stream-deleted"), ("stream-name", stream)
    return Refused("FAILED_PRECONDITION", f"Event stream '{stream}' is deleted.", *trailers)


def wrong_version_of_delete(stream: str, expected: int, actual: int) -> Refused:
    """The version to delete is not the stream's."""
    text = "Delete failed due to WrongExpectedVersion."
    numbers = f"Stream: {stream}, Expected version: {expected}, Actual version: {actual}"
    trailers = ("exception", "wrong-expected-version"), ("stream-name", stream)
    versions = ("expected-version", str(expected)), ("actual-version", str(actual))
    return Refused("FAILED_PRECONDITION", f"{text} {numbers}", *trailers, *versions)


def not_leader(host: str, port: int) -> Refused:
    """Another node is the leader, at this address."""
    address = ("leader-endpoint-host", host), ("leader-endpoint-port", str(port))
    return Refused("NOT_FOUND", "Leader info available", ("exception", "not-leader"), *address)


def failed(
    answer: streams_pb2.BatchAppendResp, details: Message, code: int = UNKNOWN_CODE, text: str = ""
) -> streams_pb2.BatchAppendResp:
    """Make an append's answer an error: the call itself goes well."""
    answer.error.code = code  # type: ignore[assignment]  # its stub knows the names of the codes only
    answer.error.message = text or type(details).__name__
    answer.error.details.Pack(details)
    return answer


def wrong_version(expected: int, found: WrongVersion) -> shared_pb2.WrongExpectedVersion:
    """Say what version was expected and which one is there."""
    details = shared_pb2.WrongExpectedVersion()
    if found.actual < 0:
        details.current_no_stream.CopyFrom(empty_pb2.Empty())
    else:
        details.current_stream_revision = found.actual
    if expected >= 0:
        details.expected_stream_position = expected
    else:
        wanted = {ANY: "expected_any", NO_STREAM: "expected_no_stream", EXISTS: "expected_stream_exists"}[expected]
        getattr(details, wanted).SetInParent()
    return details
