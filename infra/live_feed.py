"""The receiving side of live tokens: one connection of a process listens, all who watch share what it hears."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import orjson
import psycopg

from infra.database import DatabaseUnavailable
from infra.live_messages import CHANNEL, LiveMessage, load_message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import LiteralString
    from uuid import UUID

    from commands.agent.live import Kind
    from infra.database import Database
    from infra.live_messages import Try

logger = logging.getLogger(__name__)

READ: LiteralString = """
    select conversation_id, turn, step, attempt, try, index, text, thinking from live_turns
    where conversation_id = any(%s::uuid[])
"""


class LiveNews(NamedTuple):
    """What a watcher is told: a delta, or the partial (all so far) of one kind. `data` is JSON, shared by all."""

    name: Literal["delta", "partial"]
    turn: int
    step: int
    data: bytes


Deliver = Callable[[LiveNews], None]


@dataclass(slots=True)
class _Heard:
    """What was said in a try, up to its delta `index`."""

    spoken_in: Try
    index: int
    texts: dict[Kind, list[str]]


@dataclass(slots=True)
class _Channel:
    """A conversation that somebody watches."""

    conversation_id: UUID
    watchers: list[Deliver] = field(default_factory=list)
    heard: _Heard | None = None

    def hear(self, message: LiveMessage) -> bool:
        """Take a message in, and pass a delta on; False when the row has something that was missed."""
        if self._begins(message):
            self.heard = _Heard(message.spoken_in, 0, {"thinking": [], "text": []})
            self._tell(self.partials())  # what was said before is to be forgotten
        heard = self.heard
        if heard and (message.spoken_in, message.index) <= (heard.spoken_in, heard.index):
            return True
        if heard and message.text and (message.spoken_in, message.index) == (heard.spoken_in, heard.index + 1):
            heard.index = message.index
            heard.texts[message.kind].append(message.text)
            self._tell([_news("delta", message)])
            return True
        return bool(message.text)  # after a gap the row is read when it has come so far, as a message then says

    def _begins(self, message: LiveMessage) -> bool:
        if self.heard is None or message.spoken_in > self.heard.spoken_in:
            return message.begins
        # who hands a turn back is followed by a worker that begins the same try again
        return message.spoken_in == self.heard.spoken_in and message.index == 0 < self.heard.index

    def adopt(self, heard: _Heard, before: _Heard | None) -> None:
        """Take the row's state over if it is newer, and pass it on; `before` was heard when its reading began."""
        if self.heard is not None and self.heard is not before and self.heard.spoken_in == heard.spoken_in:
            return  # the same try began again meanwhile: the row is what was to be forgotten
        if self.heard is None or (heard.spoken_in, heard.index) > (self.heard.spoken_in, self.heard.index):
            self.heard = heard
            self._tell(self.partials())

    def partials(self) -> list[LiveNews]:
        """Return all so far, one a kind, empty ones first: these clear."""
        if self.heard is None:
            return []
        texts = [(kind, "".join(pieces)) for kind, pieces in self.heard.texts.items()]
        return [
            _news("partial", LiveMessage(self.conversation_id, self.heard.spoken_in, self.heard.index, kind, text))
            for kind, text in sorted(texts, key=lambda item: item[1] != "")
        ]

    def _tell(self, news: Sequence[LiveNews]) -> None:
        for deliver in self.watchers:
            for item in news:
                deliver(item)


class LiveFeed:
    """What models say, in this process and others, for those who watch. Use it in one event loop, by ``async with``.

    Lossy: a watcher misses what the database loses, and gets all so far again as soon as its row has it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._channels: dict[UUID, _Channel] = {}
        self._listening = False
        self._reading: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._listen(), name="live feed")
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in (self._task, *self._reading):
            task.cancel()
        await asyncio.wait({self._task, *self._reading})

    @contextmanager
    def watched(self, conversation_id: UUID, deliver: Deliver) -> Iterator[None]:
        """Call `deliver`, which must not wait, with all so far, as soon as it is known, and then with each delta."""
        channel = self._channels.get(conversation_id)
        if channel is None:
            channel = self._channels[conversation_id] = _Channel(conversation_id)
            if self._listening:
                reading = asyncio.create_task(self._read([conversation_id]))
                self._reading.add(reading)
                reading.add_done_callback(self._reading.discard)
        for news in channel.partials():
            deliver(news)
        channel.watchers.append(deliver)
        try:
            yield
        finally:
            channel.watchers.remove(deliver)
            if not channel.watchers:
                del self._channels[conversation_id]

    async def _listen(self) -> None:
        async with aclosing(self._database.listen([CHANNEL])) as notifications:
            async for notification in notifications:
                if notification is None:
                    self._listening = True
                    for channel in self._channels.values():
                        channel.heard = None
                    await self._read(list(self._channels))
                elif self._channels and (message := load_message(notification.payload)):
                    watched = self._channels.get(message.conversation_id)
                    if watched is not None and not watched.hear(message):
                        await self._read([message.conversation_id])

    async def _read(self, conversation_ids: list[UUID]) -> None:
        before = {one: self._channels[one].heard for one in conversation_ids if one in self._channels}
        try:
            async with self._database.connection() as connection:
                rows = await (await connection.execute(READ, (conversation_ids,))).fetchall()
        except (DatabaseUnavailable, psycopg.Error) as error:
            logger.warning("what was said live cannot be read: %s", error, extra={"action": "live_unreadable"})
            return
        for conversation_id, turn, step, attempt, try_, index, text, thinking in rows:
            if channel := self._channels.get(conversation_id):
                heard = _Heard((turn, step, attempt, try_), index, {"thinking": [thinking], "text": [text]})
                channel.adopt(heard, before.get(conversation_id))


def _news(name: Literal["delta", "partial"], message: LiveMessage) -> LiveNews:
    turn, step, *_ = message.spoken_in
    return LiveNews(name, turn, step, orjson.dumps(message.shown()))
