"""A conversation event by event: what each changed, and what the log then owed."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from pydantic import BaseModel

from api.debugging.moment import Fold, beginning, of_one_append, state_at
from api.debugging.patch import json_patch
from api.debugging.seen import Json
from api.event_text import event_text
from api.printable import shortened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.debugging.history import History
    from projections.event import Event


MOST_CHARACTERS = 500
"""Of what an event says."""


class Step(BaseModel):
    """An event, and what it made of the conversation.

    `text` tells in a line what it says. `patch` (RFC 6902) leads from the state before to the state after it; `owes` is
    what the log owed at the event's own time; `messages` are the rows that people see, as far as the event made or
    changed them. `amid`: the next event came in the same append, so that nobody has ever seen the log end here.
    """

    seq: int
    event_id: UUID
    type: str
    occurred_at: datetime
    data: Json
    text: str
    patch: list[Json]
    owes: list[Json]
    amid: bool
    messages: list[Json]


class Difference(BaseModel):
    """The patch (RFC 6902) that leads from the state at one seq to that at another: the steps between them, in one."""

    conversation_id: UUID
    from_seq: int
    to_seq: int
    patch: list[Json]


class Steps:
    """Steps through a conversation, one page after the other, folding each event once."""

    def __init__(self, history: History, fold: Fold) -> None:
        self._history, self._fold = history, fold
        self._state = fold.state

    @property
    def seq(self) -> int:
        """The event after which this stands."""
        return self._fold.conversation.version

    @classmethod
    async def after(cls, history: History, seq: int) -> Steps:
        """Stand after an event (0: before the first); raises `ConversationNotFound`."""
        events = await history.window(seq)
        fold = Fold(await beginning(history, events))
        await asyncio.to_thread(lambda: [fold.take(event) for event in events])
        return cls(history, fold)

    async def next(self, limit: int | None = None) -> list[Step]:
        """Go on by so many events, or by a page; at the end of the log there are none."""
        events = await self._history.page(self.seq, limit)
        following = [*events[1:], *(await self._history.page(events[-1].seq, 1) if events else ())]
        return await asyncio.to_thread(lambda: list(map(self._step, events, [*following, None])))

    async def all(self) -> AsyncIterator[Step]:
        """Go on to the end of the log."""
        while steps := await self.next():
            for step in steps:
                yield step

    def _step(self, event: Event, following: Event | None) -> Step:
        changed = self._fold.take(event)
        before, self._state = self._state, self._fold.state
        return Step(
            seq=event.seq,
            event_id=event.event_id,
            type=event.type,
            occurred_at=event.occurred_at,
            data=event.data,
            text=shortened(event_text(event.type, event.data), MOST_CHARACTERS),
            patch=json_patch(before, self._state),
            owes=self._fold.owes(event.occurred_at),
            amid=of_one_append(event, following),
            messages=changed,
        )


async def difference(history: History, from_seq: int, to_seq: int | None) -> Difference:
    """Return the patch between two states, in either direction; None is the newest.

    Raises `ConversationNotFound`, and `InvalidInput` for a seq that the log has not reached.
    """
    to_seq = await history.last_seq() if to_seq is None else to_seq
    before = await state_at(history, from_seq, field="from")
    after = await state_at(history, to_seq, field="to")
    patch = await asyncio.to_thread(json_patch, before, after)
    return Difference(conversation_id=history.conversation_id, from_seq=from_seq, to_seq=to_seq, patch=patch)
