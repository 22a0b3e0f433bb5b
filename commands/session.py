"""A loaded conversation that keeps step with its log; the one place where a lost race is retried."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from commands.ports import TooManyRaces
from domain.errors import ConversationNotFound
from domain.event_store import STREAM_DELETED, StoreError, StreamDeleted, StreamMoved
from domain.wire import decode, encode, stream_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime
    from uuid import UUID

    from commands.ports import Clock
    from domain.conversation import Conversation
    from domain.event_envelope import ConversationEvent
    from domain.event_store import EventStore, StoredEvent
    from domain.wire import CommandMark

Answer = TypeVar("Answer")
Done = TypeVar("Done")
RACES = 20
"""So many lost races in a row are given up."""


class Session:
    """One conversation in memory, as far as it was read; `news` are the events taken in since it was loaded.

    Not for concurrent use: whoever holds it appends one decision after the other.
    """

    def __init__(
        self,
        store: EventStore,
        clock: Clock,
        conversation: Conversation,
        position: int = 0,
        loaded: Sequence[StoredEvent] = (),
    ) -> None:
        """`loaded` are the newest events that `conversation` was folded from, without a gap."""
        self._store, self._clock = store, clock
        self.conversation = conversation
        self.position = position
        self.news: list[ConversationEvent] = []
        self._loaded = loaded
        self._decoded: list[ConversationEvent] = []
        self.stream = stream_of(conversation.id)

    @property
    def conversation_id(self) -> UUID:
        """The conversation's id."""
        return self.conversation.id

    @property
    def seq(self) -> int:
        """The seq of the newest event that was folded."""
        return self.conversation.version

    @property
    def newest(self) -> list[ConversationEvent]:
        """The newest events, without a gap: at least those since the newest turn began."""
        if self._loaded:
            self._decoded, self._loaded = [decode(event) for event in self._loaded], ()
        return [*self._decoded, *self.news]

    async def refresh(self) -> list[StoredEvent]:
        """Read and fold what others appended, and return it."""
        news = await self._store.read(self.stream, after=self.seq)
        self.fold(news)
        return news

    def fold(self, stored: Sequence[StoredEvent]) -> None:
        """Fold those of these events that are next; older ones are known already.

        Raises `UnknownEventType`, and `ConversationNotFound` at the tombstone of a deleted stream; then none is folded.
        """
        news = [event for event in stored if event.seq > self.seq]
        if any(event.type == STREAM_DELETED for event in news):
            raise ConversationNotFound("no such conversation")
        if news:
            decoded = [decode(event) for event in news]
            self.conversation.fold(decoded)
            self._take(decoded, news[-1].position)

    async def append(
        self,
        decide: Callable[[Conversation, datetime], Answer],
        *,
        mark: Callable[[Answer], CommandMark] | None = None,
        moved: Callable[[list[StoredEvent]], None] | None = None,
        outage: Callable[[StoreError], Awaitable[None]] | None = None,
    ) -> Answer:
        """Decide on a copy and append what that triggers; when others were first, fold theirs and decide again.

        `moved` sees what others appended, and may raise instead.
        While the store is out of reach `outage` may wait, or raise to give up: what may have been written is sent
        again as it is, so that no outcome stays unknown. Without it a `StoreError` is raised.
        Raises what `decide` raises, `ConversationNotFound` if the stream was deleted, `TooManyRaces` after `RACES`.
        """
        for race in range(RACES):
            trial = self.conversation.copied()
            answer = decide(trial, self._clock.now())
            decided = cast("list[ConversationEvent]", list(trial.collect_events()))
            if not decided:
                return answer
            command = mark(answer) if mark else None
            news = [encode(event, command) for event in decided]
            try:
                appended = await _through(outage, partial(self._store.append, self.stream, news, self.seq))
            except StreamMoved:
                await asyncio.sleep(random.uniform(0, 0.002 * min(race, 10)))
                news_of_others = await _through(outage, self.refresh)
                if moved is not None:
                    moved(news_of_others)
            except StreamDeleted as error:
                raise ConversationNotFound("no such conversation") from error
            else:
                self.conversation = trial
                self._take(decided, appended.position)
                return answer
        raise TooManyRaces("others keep appending to this conversation; try again")

    def _take(self, news: list[ConversationEvent], position: int) -> None:
        self.news += news
        self.position = position


async def _through(
    outage: Callable[[StoreError], Awaitable[None]] | None, attempt: Callable[[], Awaitable[Done]]
) -> Done:
    while True:
        try:
            return await attempt()
        except StoreError as error:
            if outage is None:
                raise
            await outage(error)
