"""The event store on EventStoreDB."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from domain.event_store import STREAM_DELETED, Appended, Batch, StoredEvent, StoreError, StreamDeleted, StreamMoved
from infra.eventstoredb.clients import (
    BadRequestError,
    MaximumAppendSizeExceededError,
    StreamIsDeletedError,
    StreamState,
    WrongCurrentVersionError,
)
from infra.eventstoredb.deletions import Deletions
from infra.eventstoredb.line import Line
from infra.eventstoredb.reader import PAGE_EVENTS, Reader
from infra.eventstoredb.records import MOST, Names, to_record, without_torn_end
from infra.eventstoredb.subscription import LiveSubscription
from infra.fan_out import FanOut, by_position, by_seq, follow
from infra.storable import check_storable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from domain.event_store import NewEvent
    from infra.eventstoredb.clients import Client

PATIENCE_SECONDS = 15.0
OPENING_SECONDS = 10.0
CLOSING_SECONDS = 2.0
"""How long closing waits for appends that are under way."""

MAX_REQUEST_BYTES = 15 * 1024 * 1024
"""A server takes requests of less than 16 MiB; what it takes in one append is its own setting, `MaxAppendSize`."""


class EventStoreDBEventStore:
    """An `EventStore` on EventStoreDB or KurrentDB.

    An async context manager; use it in one event loop. `uri` is the server's connection string, `prefix` stands before
    the names of all streams there and is not seen from here. Three clients, for appends, reads and the subscription,
    keep each other's trouble away. An outage is borne for `patience` seconds: what cannot be settled until then raises
    `StoreError`; subscriptions sit through it. Closing ends them. Raises `ValueError` for a bad connection string.
    """

    def __init__(self, uri: str, prefix: str = "", *, patience: float = PATIENCE_SECONDS) -> None:
        self._patience, self._names = patience, Names(prefix)
        self._appends, self._reads, self._live_line = (Line(uri, patience) for _ in range(3))
        self._reader = Reader(self._reads, self._names, patience)
        self._deletions, self._fan_out = Deletions(self), FanOut()
        self._live = LiveSubscription(
            self._live_line, self._reader, self._names, self._deletions, self._fan_out, patience
        )

    async def __aenter__(self) -> Self:
        try:
            await self._reader.head(min(self._patience, OPENING_SECONDS), quiet=True)
        except BaseException:  # a cancellation too: the channel would stay open
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._fan_out.close()
        await self._live.close()
        await self._appends.close(CLOSING_SECONDS)
        await self._live_line.close()
        await self._reads.close()

    async def append(self, stream: str, events: Sequence[NewEvent], expected: int) -> Appended:
        """Append at the exact version; durable, on a quorum of a cluster, when it returns."""
        size = check_storable(stream, events)
        if size > MAX_REQUEST_BYTES:
            raise ValueError(f"an append of {size} bytes is too large: a server takes {MAX_REQUEST_BYTES}")
        # a list, never a generator: the client may send it again
        records = [to_record(event, more) for more, event in zip(reversed(range(len(events))), events, strict=True)]
        name, version = self._names.on_server(stream), expected - 1 if expected else StreamState.NO_STREAM

        # An unknown outcome (a timeout, a lost connection) is settled by sending the same ids at the same version
        # again, in here and in the client. Was the first try written, the version is past: the server compares the ids
        # and returns the original receipt. Was it not, this try is written. Is it still on its way, one of the two is
        # written and the other finds itself there: the server compares no ids only where the expected version is the
        # current one, and two tries cannot both meet it. A refusal is final too: somebody else's events are at these
        # versions, so no try can get there any more. (Only at another version could a repeat be written twice.)
        async def attempt(client: Client) -> int:
            position: int = await client.append_to_stream(
                name, current_version=version, events=records, timeout=self._patience / 3
            )
            return position

        try:
            return Appended(expected + len(records), await self._appends.call(attempt))
        except WrongCurrentVersionError as error:
            raise StreamMoved(stream, expected, _actual(error)) from error
        except StreamIsDeletedError as error:
            raise StreamDeleted(stream) from error
        except (MaximumAppendSizeExceededError, BadRequestError) as error:
            raise ValueError(f"EventStoreDB does not take an append of {size} bytes: {error}") from error

    async def read(
        self, stream: str, *, after: int = 0, before: int | None = None, limit: int | None = None, first: bool = False
    ) -> list[StoredEvent]:
        """Return the events with ``after < seq < before``, ascending."""
        first, end = first or limit is None, MOST if before is None else before
        try:
            records = await self._reader.stream(stream, after, end, limit, first=first)
        except StreamIsDeletedError:
            return []
        return list(map(self._names.stored, records if first else reversed(records)))

    async def read_all(self, after_position: int, *, limit: int, prefixes: Sequence[str] = ()) -> list[StoredEvent]:
        """Return up to `limit` events with a greater position, ascending, of streams that begin with a prefix."""
        events: list[StoredEvent] = []
        position, count, full = after_position, limit, True
        while full and len(events) < limit:
            page, position, full = await self._page(position, min(count, PAGE_EVENTS), prefixes)
            events += page
            count *= 2  # where deleted streams were, there may be little to see
        return events[:limit]

    def subscribe(self, after_position: int, *, prefixes: Sequence[str] = ()) -> AsyncGenerator[Batch, None]:
        """Catch up from `after_position`, then stay live."""

        async def page(after: int) -> Batch:
            await self._live.started()
            head = await self.head()
            events, reached, full = await self._page(after, PAGE_EVENTS, prefixes, torn=False)
            return Batch(tuple(events), reached if full else max(reached, head), caught_up=not full)

        return follow(self._fan_out.joined(prefixes), page, after_position, by_position)

    def subscribe_stream(self, stream: str, after: int) -> AsyncGenerator[Batch, None]:
        """Catch up with one stream from a seq, then stay live; a deleted stream delivers its tombstone."""

        async def page(after: int) -> Batch:
            await self._live.started()
            try:
                records = await self._reader.stream_page(stream, after, PAGE_EVENTS)
            except StreamIsDeletedError:
                tombstone = (await self._tombstone(stream),) if after < MOST else ()
                return Batch(tombstone, MOST, caught_up=True)
            full = len(records) == PAGE_EVENTS
            events = tuple(map(self._names.stored, (full and without_torn_end(records)) or records))
            return Batch(events, events[-1].seq if events else after, caught_up=not full)

        return follow(self._fan_out.joined_stream(stream), page, after, by_seq)

    async def delete(self, stream: str) -> None:
        """Delete a stream for good, leaving the server's tombstone; doing it again does nothing.

        First the stream is named in the ledger, so that nobody sees its events any more when its tombstone is there.
        """
        await self._deletions.add(stream)

        async def attempt(client: Client) -> None:
            with suppress(StreamIsDeletedError):
                await client.tombstone_stream(
                    self._names.on_server(stream), current_version=StreamState.ANY, timeout=self._patience / 3
                )

        await self._appends.call(attempt)

    async def head(self) -> int:
        """Return the position of the newest event of the server, 0 if there is none."""
        return await self._reader.head()

    async def _page(
        self, after: int, count: int, prefixes: Sequence[str], *, torn: bool = True
    ) -> tuple[list[StoredEvent], int, bool]:
        """Read on in `$all`: what may be seen, the position that was reached, and whether there may be more."""
        (records, reached, full), _ = await asyncio.gather(
            self._reader.all(after, count, self._names.filter(prefixes)), self._deletions.refresh()
        )
        if records and full and not torn:
            uncut = without_torn_end(records)
            if uncut or len(records) < count:  # else it is an append larger than a page
                records = uncut
            reached = (records[-1].commit_position or 0) if records else after
        return [event for event in map(self._names.stored, records) if self._deletions.shows(event)], reached, full

    async def _tombstone(self, stream: str) -> StoredEvent:
        """Find the tombstone of a deleted stream, of which its reads say nothing: it comes after the ledger's entry."""
        await self._deletions.refresh()
        position = self._deletions.position(stream)
        full = True
        while full:
            records, position, full = await self._reader.all(position, 1, self._names.only(stream))
            if records and records[0].type == STREAM_DELETED:
                return self._names.stored(records[0])
        raise StoreError(f"{stream} was deleted, but its tombstone is not there (yet)")


def _actual(error: WrongCurrentVersionError) -> int:
    """Return the seq that a stream has by the leader's word: a read may not see what is on its way to a quorum."""
    found = re.search(r"last event is (\d+)", str(error))
    return int(found[1]) + 1 if found else 0
