"""The reads of the double: pages of one stream or of $all, forwards and backwards."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from tests.support.eventstoredb.log import DELETED, is_in_all
from tests.support.eventstoredb.refusals import Refused, stream_deleted
from tests.support.eventstoredb.stubs import shared_pb2, streams_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.support.eventstoredb.journal import Record
    from tests.support.eventstoredb.log import Log


def check(options: streams_pb2.ReadReq.Options) -> None:
    """Refuse what the server calls an invalid combination."""
    subscribing = options.WhichOneof("count_option") == "subscription"
    of_stream = options.WhichOneof("stream_option") == "stream"
    if not options.HasField("uuid_option"):
        raise Refused("INVALID_ARGUMENT", "'uuidOption' is a required argument")
    if (subscribing and is_backwards(options)) or (of_stream and options.WhichOneof("filter_option") == "filter"):
        raise Refused("INVALID_ARGUMENT", "The combination is invalid.")
    if not subscribing and options.count == 0:
        raise Refused("UNKNOWN", "Unexpected ReadResult: Error >> maxCount should be positive.")


def read_stream(log: Log, options: streams_pb2.ReadReq.Options) -> Iterator[streams_pb2.ReadResp]:
    """Read one stream from a number on, which is included."""
    stream = stream_of(options)
    if log.last(stream) == DELETED or (stream.startswith("$$") and log.last(stream[2:]) == DELETED):
        raise stream_deleted(stream)
    if log.last(stream) < 0 or log.is_soft_deleted(stream):
        missing = streams_pb2.ReadResp.StreamNotFound(stream_identifier=options.stream.stream_identifier)
        yield streams_pb2.ReadResp(stream_not_found=missing)
        return
    records, first = log.stream(stream), log.first_readable(stream)
    named = options.stream.WhichOneof("revision_option")
    start = {"start": 0, "end": records[-1].number}.get(named or "start", options.stream.revision)
    wanted: Iterable[Record] = records[max(first, start) :]
    if is_backwards(options):
        wanted = reversed(records[first : min(start, records[-1].number) + 1])
    yield from map(event, islice(wanted, options.count))


def read_all(log: Log, options: streams_pb2.ReadReq.Options) -> Iterator[streams_pb2.ReadResp]:
    """Read $all: forwards from a position that is included, backwards from one that is not."""
    named = options.all.WhichOneof("all_option")
    try:
        start = (
            {"start": 0, "end": len(log.records)}[named or "start"]
            if named != "position"
            else log.place(options.all.position.commit_position)
        )
    except LookupError:
        raise Refused("UNKNOWN", "Unexpected ReadAllResult: InvalidPosition") from None
    wanted: Iterable[Record] = islice(log.records, start, len(log.records))
    if is_backwards(options):
        wanted = reversed(log.records[:start])
    yield from map(event, islice(filter(wanted_by(options), wanted), options.count))


def wanted_by(options: streams_pb2.ReadReq.Options) -> Callable[[Record], bool]:
    """Return what says whether a record passes the filter of a read or subscription of $all."""
    if options.WhichOneof("filter_option") != "filter":
        return is_in_all
    by_stream = options.filter.WhichOneof("filter") == "stream_identifier"
    expression = options.filter.stream_identifier if by_stream else options.filter.event_type
    prefixes, pattern = tuple(expression.prefix), re.compile(expression.regex)

    def is_wanted(record: Record) -> bool:
        text = record.stream if by_stream else record.type
        return is_in_all(record) and bool(pattern.search(text) if pattern.pattern else text.startswith(prefixes))

    return is_wanted


def is_backwards(options: streams_pb2.ReadReq.Options) -> bool:
    """Say whether the read goes backwards."""
    return options.read_direction == streams_pb2.ReadReq.Options.Backwards


def stream_of(options: streams_pb2.ReadReq.Options) -> str:
    """Return the name of the stream to be read."""
    return options.stream.stream_identifier.stream_name.decode()


def event(record: Record) -> streams_pb2.ReadResp:
    """Make the message of a record."""
    content_type = "application/json" if record.is_json else "application/octet-stream"
    recorded = streams_pb2.ReadResp.ReadEvent.RecordedEvent(
        id=shared_pb2.UUID(string=str(record.id)),
        stream_identifier=shared_pb2.StreamIdentifier(stream_name=record.stream.encode()),
        stream_revision=record.number,
        prepare_position=record.position,
        commit_position=record.position,
        metadata={"type": record.type, "created": str(record.created), "content-type": content_type},
        custom_metadata=record.metadata,
        data=record.data,
    )
    read = streams_pb2.ReadResp.ReadEvent(event=recorded, commit_position=record.position)
    return streams_pb2.ReadResp(event=read)
