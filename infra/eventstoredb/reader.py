"""Reads from the server: pages of one stream or of `$all`, whole or not at all."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from infra.eventstoredb.clients import DeadlineExceededError, Interrupted, NotFoundError, in_time, whole
from infra.eventstoredb.errors import InvalidPosition
from infra.eventstoredb.records import MOST

if TYPE_CHECKING:
    from infra.eventstoredb.clients import Client, RecordedEvent
    from infra.eventstoredb.line import Line
    from infra.eventstoredb.records import Names

logger = logging.getLogger(__name__)

PAGE_EVENTS = 1_000
LOOK_EVENTS = 5_000
"""How many events of others a server looks through between two words of how far it has come."""


class Reader:
    """Reads records by the names of our streams; every method bears outages as its line does."""

    def __init__(self, line: Line, names: Names, patience: float) -> None:
        self._line, self._names, self._patience = line, names, patience

    async def head(self, patience: float | None = None, *, quiet: bool = False) -> int:
        """Return the position of the newest event of all streams, the server's own too, 0 if there is none.

        Of the server's own too, for a checkpoint may lie beyond the newest event of ours.
        """

        async def attempt(client: Client) -> list[RecordedEvent]:
            return await whole(
                await client.read_all(backwards=True, limit=1, filter_exclude=(), timeout=self._patience)
            )

        newest = await self._line.call(attempt, patience=patience, quiet=quiet)
        return newest[0].commit_position or 0 if newest else 0

    async def stream(
        self, stream: str, after: int, before: int, limit: int | None, *, first: bool
    ) -> list[RecordedEvent]:
        """Read the records with ``after < seq < before`` page by page from the side that is kept, and return them so.

        That is ascending for `first` or without a limit, otherwise descending. Raises `StreamIsDeletedError`.
        """
        left = MOST if limit is None else limit
        records: list[RecordedEvent] = []
        while (count := min(left, before - after - 1, PAGE_EVENTS)) > 0:
            page = await self.stream_page(stream, after if first else before, count, backwards=not first)
            found = [one for one in page if after <= one.stream_position < before - 1]
            records += found
            left -= len(found)
            if len(found) < count:
                break
            if first:
                after = found[-1].stream_position + 1
            else:
                before = found[-1].stream_position + 1
        return records

    async def stream_page(self, stream: str, seq: int, count: int, *, backwards: bool = False) -> list[RecordedEvent]:
        """Read up to `count` records after a seq, or backwards those before it."""
        start: int | None = seq - 2 if backwards else seq
        if backwards and seq >= MOST:
            start = None  # the end
        elif not 0 <= seq < MOST:
            return []

        async def attempt(client: Client) -> list[RecordedEvent]:
            try:
                return await whole(
                    await client.read_stream(
                        self._names.on_server(stream),
                        stream_position=start,
                        backwards=backwards,
                        limit=count,
                        timeout=self._patience,
                    )
                )
            except NotFoundError:
                return []

        return await self._line.call(attempt)

    async def all(self, after: int, count: int, streams: list[str]) -> tuple[list[RecordedEvent], int, bool]:
        """Read up to `count` records of `$all` with a greater position than `after`.

        Returns them, the position that was reached, and whether there may be more: what takes the server long, such as
        looking through millions of events of other programs, is done piece by piece.
        """
        if after > MOST:
            return [], after, False
        start = after

        async def attempt(client: Client) -> tuple[list[RecordedEvent], int, bool]:
            response = await client.read_all(
                commit_position=start or None,
                limit=count + 1,  # the record at the position itself comes first
                filter_include=streams,
                filter_by_stream_name=True,
                timeout=self._patience / 3,
            )
            records, ended = await in_time(response)
            records = [record for record in records if (record.commit_position or 0) > after][:count]
            if records:
                return records, records[-1].commit_position or 0, len(records) == count or not ended
            return [], after if ended else await self._looked_through(client, start, streams), not ended

        try:
            return await self._line.call(attempt)
        except InvalidPosition:
            start = await self._boundary(after, streams)
            return await self._line.call(attempt)

    async def _looked_through(self, client: Client, position: int, streams: list[str]) -> int:
        """Return how far after a position there is nothing: only a subscription tells how far the server has looked.

        Raises `Interrupted` if it is not far: then a read can be had in time.
        """
        subscription = await client.subscribe_to_all(
            commit_position=position or None,
            filter_include=streams,
            filter_by_stream_name=True,
            include_checkpoints=True,
            include_caught_up=True,
            window_size=LOOK_EVENTS,
            checkpoint_interval_multiplier=1,
            timeout=self._patience / 3,
        )
        reached = newest = position
        async with subscription:
            with suppress(DeadlineExceededError):
                async for record in subscription:
                    if not record.is_checkpoint:
                        break
                    # the last one does not count: see `LiveSubscription`
                    reached, newest = newest, record.commit_position or 0
        if reached == position:
            raise Interrupted("the server does not answer in time")
        return reached

    async def _boundary(self, position: int, streams: list[str]) -> int:
        """Find the newest event at or before a position at which none begins (somebody made it up), by reading all."""
        logger.warning("no event has the position %d: reading the log from its start", position)
        found = 0
        while True:
            records, reached, full = await self.all(found, PAGE_EVENTS, streams)
            if reached > position or not full:
                positions = (record.commit_position or 0 for record in records)
                return max((one for one in positions if one <= position), default=found)
            found = reached
