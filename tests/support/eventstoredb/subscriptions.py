"""The subscriptions of the double: catch-up by pages, then live, and back to catch-up for a reader that is too slow.

After `Enumerator.StreamSubscription`, `AllSubscription` and `AllSubscriptionFiltered` of the server's source.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

from tests.support.eventstoredb.log import DELETED, STREAM_DELETED, Log, Waiting
from tests.support.eventstoredb.reads import event, stream_of, wanted_by
from tests.support.eventstoredb.refusals import Refused, stream_deleted
from tests.support.eventstoredb.stubs import streams_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

PAGE = 32
LIVE_BUFFER = 32
"""A live subscription that has more records before it has lost some, and goes back to catching up."""


async def subscribe_stream(log: Log, options: streams_pb2.ReadReq.Options) -> AsyncIterator[streams_pb2.ReadResp]:
    """Follow one stream after a number; a tombstone is delivered live and then ends it, as one that is there does."""
    stream = stream_of(options)
    if log.last(stream) == DELETED:
        raise stream_deleted(stream)
    yield _confirmation()
    named = options.stream.WhichOneof("revision_option")
    after = {"start": -1, "end": log.last(stream)}.get(named or "start", options.stream.revision)
    with _waiting(log) as waiting:
        while True:
            while after < log.last(stream):
                if log.last(stream) == DELETED:
                    raise stream_deleted(stream)
                for record in log.stream(stream)[after + 1 :]:
                    after = record.number
                    if record.number >= log.first_readable(stream):
                        yield event(record)
            yield _caught_up()
            while len(live := log.stream(stream)[after + 1 :]) <= LIVE_BUFFER:
                for record in live:
                    yield event(record)
                    after = record.number
                    if record.type == STREAM_DELETED:
                        raise stream_deleted(stream)
                if not live:
                    await waiting.for_more()


async def subscribe_all(log: Log, options: streams_pb2.ReadReq.Options) -> AsyncIterator[streams_pb2.ReadResp]:
    """Follow $all after a position; a filtered one is told by checkpoints how far it was looked."""
    following = _AllSubscription(log, options)
    yield _confirmation()
    with _waiting(log) as waiting:
        if not following.starts_live():
            for answer in following.catch_up():
                yield answer
        while True:
            yield _caught_up()
            while not following.is_too_slow():
                for answer in following.live():
                    yield answer
                if following.has_seen_all():
                    await waiting.for_more()
            for answer in following.catch_up():
                yield answer


class _AllSubscription:
    """Where one subscription of $all is: `_checkpoint` was sent last, `_next` is the index of what comes next."""

    def __init__(self, log: Log, options: streams_pb2.ReadReq.Options) -> None:
        self._log, self._wanted = log, wanted_by(options)
        self._filtered = options.WhichOneof("filter_option") == "filter"
        self._window = options.filter.max if options.filter.WhichOneof("window") == "max" else PAGE
        self._interval = self._window * options.filter.checkpointIntervalMultiplier
        if self._filtered and not self._interval:
            raise Refused("UNKNOWN", "Exception was thrown by handler.")
        self._subscribed = len(log.records)
        newest = log.records[-1].position
        named = options.all.WhichOneof("all_option")
        start = {"start": -1, "end": newest}.get(named or "start", options.all.position.commit_position)
        self._checkpoint, self._told = start, -1
        try:
            self._next = 0 if start < 0 else log.place(start)
        except LookupError:
            raise Refused("INVALID_ARGUMENT", "Trying to read from an invalid position.") from None

    def starts_live(self) -> bool:
        """Say whether there is nothing to catch up with."""
        return self._checkpoint >= self._log.records[-1].position

    def is_too_slow(self) -> bool:
        """Say whether more is waiting than the server keeps for a live subscription."""
        return len(self._log.records) - self._next > LIVE_BUFFER

    def has_seen_all(self) -> bool:
        """Say whether nothing is waiting."""
        return self._next >= len(self._log.records)

    def catch_up(self) -> Iterator[streams_pb2.ReadResp]:
        """Deliver page by page up to the end; a checkpoint is the start of the newest page, or an event in it."""
        log, considered_since = self._log, 0
        while True:
            page, considered, delivered = self._next, 0, 0
            while self._next < len(log.records) and considered < self._window and delivered < PAGE:
                record = log.records[self._next]
                self._next += 1
                considered += 1
                if record.position > self._checkpoint and self._wanted(record):
                    delivered += 1
                    yield event(record)
                    self._checkpoint = record.position
            if page < len(log.records):
                self._checkpoint = max(self._checkpoint, log.records[page].position)
            considered_since += considered
            at_end = self._next >= len(log.records) and considered < self._window and delivered < PAGE
            if at_end or considered_since >= self._interval:
                considered_since %= self._interval or 1
                yield from self._told_checkpoint()
            if at_end:
                return

    def live(self) -> Iterator[streams_pb2.ReadResp]:
        """Deliver what is waiting; a checkpoint is where so many records were considered since the subscription."""
        for at in range(self._next, len(self._log.records)):
            record = self._log.records[at]
            self._next = at + 1
            if record.position <= self._checkpoint:
                continue
            if self._wanted(record):
                yield event(record)
                self._checkpoint = record.position
            if self._filtered and (at + 1 - self._subscribed) % self._interval == 0:
                self._checkpoint = record.position
                yield from self._told_checkpoint()

    def _told_checkpoint(self) -> Iterator[streams_pb2.ReadResp]:
        if self._filtered and self._checkpoint > self._told:
            self._told = self._checkpoint
            place = streams_pb2.ReadResp.Checkpoint(commit_position=self._told, prepare_position=self._told)
            yield streams_pb2.ReadResp(checkpoint=place)


def _confirmation() -> streams_pb2.ReadResp:
    confirmed = streams_pb2.ReadResp.SubscriptionConfirmation(subscription_id=str(uuid4()))
    return streams_pb2.ReadResp(confirmation=confirmed)


def _caught_up() -> streams_pb2.ReadResp:
    return streams_pb2.ReadResp(caught_up=streams_pb2.ReadResp.CaughtUp())


@contextmanager
def _waiting(log: Log) -> Iterator[Waiting]:
    waiting = Waiting()
    log.waiting.add(waiting)
    try:
        yield waiting
    finally:
        log.waiting.discard(waiting)
