"""Finding an event of a long log by a text in it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.debugging.history import History
    from domain.event_store import StoredEvent

PAGE = 500


async def find(history: History, text: str, *, seq: int, backwards: bool = False) -> int | None:
    """Return the seq of the next event after `seq` whose type or data hold the text, in any case of its letters.

    At the end of the log the search goes on at its beginning, up to `seq` itself; None: no event does.
    """
    wanted = text.casefold()
    async for page in _backwards(history, seq) if backwards else _forward(history, seq):
        for event in page:
            if wanted in f"{event.type} {event.data}".casefold():
                return event.seq
        await asyncio.sleep(0)
    return None


async def _forward(history: History, seq: int) -> AsyncIterator[list[StoredEvent]]:
    for begin, end in ((seq, None), (0, seq + 1)):
        after = begin
        while page := await history.log.read(history.stream, after=after, before=end, limit=PAGE, first=True):
            yield page
            after = page[-1].seq


async def _backwards(history: History, seq: int) -> AsyncIterator[list[StoredEvent]]:
    for begin, end in ((0, seq), (seq - 1, None)):
        before = end
        while page := await history.log.read(history.stream, after=begin, before=before, limit=PAGE):
            yield page[::-1]
            before = page[0].seq
