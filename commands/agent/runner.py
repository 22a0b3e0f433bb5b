"""The loop that works on one conversation: fold, start what is owed, wait for whatever comes first, again.

It is never deaf: while a model speaks or a tool runs, new events of the conversation, deadlines and a lost lease act
at once. What its tasks find out goes through one queue, so that one append follows the other.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from commands.agent.model_context import ModelContext
from commands.agent.model_step import failing, model_step
from commands.agent.tool_dispatch import tool_dispatch
from domain.errors import Superseded
from domain.event_store import SlowSubscriber, StoreError
from domain.owes import AwaitInput, CallModel, CloseTurn, Expire, Owed, RunTools, StartTurn, owes

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import datetime

    from commands.agent.surroundings import Decide, Surroundings
    from commands.session import Session
    from domain.conversation import Conversation
    from domain.event_store import StoredEvent

logger = logging.getLogger(__name__)

RACES = 10_000
STORE_PAUSE_S = 0.25
MODEL = "model"


@dataclass(frozen=True, slots=True)
class Rest:
    """The conversation owes nothing before `due_at` (None: nothing at all) as of `seq`."""

    seq: int
    due_at: datetime | None


@dataclass(frozen=True, slots=True)
class _Decision:
    decide: Decide
    decided: asyncio.Future[None]


class Runner:
    """Works on one conversation until it rests, or it is told to let go or to abandon it."""

    def __init__(self, session: Session, surroundings: Surroundings) -> None:
        self.session = session
        self._surroundings = surroundings
        self._inbox: asyncio.Queue[_Decision | tuple[StoredEvent, ...] | None] = asyncio.Queue()
        self._context = ModelContext(surroundings.conversations.store, session)
        self._tasks: dict[str, asyncio.Task[Decide]] = {}
        self._held: tuple[int, int] | None = None
        self._letting_go = False
        self.cut_off_tools = False
        """Whether tools were running when it stopped: threads of theirs may run on."""
        self._abandoned = False

    def let_go(self) -> None:
        """Start nothing more; what runs may end, and be recorded."""
        self._letting_go = True
        self._inbox.put_nowait(None)

    def abandon(self) -> None:
        """Stop at once and append nothing more."""
        self._abandoned = True
        self._inbox.put_nowait(None)

    async def run(self, *, takeover: bool) -> Rest | None:
        """Work until the conversation rests; None when it was let go or abandoned before that.

        `takeover` says that its former holder never let go: an open turn is then resumed under a new attempt first.
        """
        listening = asyncio.create_task(self._listen())
        try:
            if takeover:
                await self._append(_resume)
            return await self._work()
        finally:
            listening.cancel()
            self.cut_off_tools = any(key != MODEL for key in self._tasks)
            await self._cancel(list(self._tasks))
            await asyncio.gather(listening, return_exceptions=True)

    async def _work(self) -> Rest | None:
        while not self._abandoned:
            await self._record_what_ended()
            now = self._surroundings.conversations.clock.now()
            owed = owes(self.session.conversation, now)
            await self._stop_what_is_not_owed(owed)
            if not self._letting_go and await self._act(owed):
                continue
            if not self._tasks:
                if self._letting_go and not all(isinstance(item, AwaitInput) for item in owed):
                    return None
                return Rest(self.session.seq, _deadline(owed))
            await self._wait(_deadline(owed), now)
        return None

    async def _act(self, owed: tuple[Owed, ...]) -> bool:
        """Start what is owed and does not run; True when something was appended, so that it must be asked again."""
        appended = False
        for item in owed:
            match item:
                case StartTurn():
                    appended |= await self._append(_start_turn)
                case Expire(calls):
                    appended |= await self._append(partial(_expire, calls))
                case CloseTurn(reason):
                    appended |= await self._append(failing(self.session.conversation, reason))
                case CallModel():
                    self._start(MODEL, lambda: model_step(self.session, self._surroundings, self._context))
                case RunTools(calls):
                    for call_id in calls:
                        self._start(call_id, partial(self._run_tool, call_id))
        return appended

    def _run_tool(self, call_id: str) -> Coroutine[None, None, Decide]:
        return tool_dispatch(call_id, self.session, self._surroundings, self._context, self._record)

    async def _record(self, decide: Decide) -> None:
        """Have a decision appended, from within a task of this runner; returns when it is durable.

        Raises `Superseded` when its place was taken.
        """
        decision = _Decision(decide, asyncio.get_running_loop().create_future())
        self._inbox.put_nowait(decision)
        await decision.decided

    def _start(self, key: str, work: Callable[[], Coroutine[None, None, Decide]]) -> None:
        if key not in self._tasks:
            task = asyncio.create_task(work(), name=key)
            task.add_done_callback(lambda _: self._inbox.put_nowait(None))
            self._tasks[key] = task

    async def _record_what_ended(self) -> None:
        for key in [key for key, task in self._tasks.items() if task.done()]:
            with suppress(Superseded):  # a step of it could not be recorded: it has no say any more
                await self._append(self._tasks.pop(key).result())
            if key == MODEL:
                self._surroundings.live.clear(self.session.conversation_id)

    async def _stop_what_is_not_owed(self, owed: tuple[Owed, ...]) -> None:
        turn = self.session.conversation.turn
        held = (turn.number, turn.attempt) if turn else None
        wanted: set[str] = set()
        for item in owed:
            match item:
                case CallModel():
                    wanted.add(MODEL)
                case RunTools(calls):
                    wanted.update(calls)
        stale = [key for key in self._tasks if held != self._held or key not in wanted]
        self._held = held
        await self._cancel(stale)
        if MODEL in stale:
            self._surroundings.live.clear(self.session.conversation_id)

    async def _cancel(self, keys: list[str]) -> None:
        tasks = [self._tasks.pop(key) for key in keys]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait(self, deadline: datetime | None, now: datetime) -> None:
        """Wait for the first of: a decision, a new event, the end of a task, the deadline; then take all there is."""
        timeout = (deadline - now).total_seconds() if deadline else None
        try:
            async with asyncio.timeout(timeout):
                item = await self._inbox.get()
        except TimeoutError:
            return
        while True:
            match item:
                case _Decision():
                    await self._settle(item)
                case tuple():
                    await self._take(item)
            if self._inbox.empty() or self._abandoned:
                return
            item = self._inbox.get_nowait()

    async def _take(self, events: tuple[StoredEvent, ...]) -> None:
        news = [event for event in events if event.seq > self.session.seq]
        if news and news[0].seq == self.session.seq + 1:
            self.session.fold(news)
        elif news:
            await self.session.refresh()

    async def _settle(self, decision: _Decision) -> None:
        if decision.decided.done():  # its task was cancelled meanwhile
            return
        recorded = await self._append(decision.decide)
        if not decision.decided.done():
            if recorded:
                decision.decided.set_result(None)
            else:
                decision.decided.set_exception(Superseded("its place in the log was taken"))

    async def _append(self, decide: Decide) -> bool:
        """Append a decision, however often others are first and however long the log is away, while we hold it.

        False when it was superseded.
        """
        while not self._abandoned:
            try:
                await self.session.append(decide, races=RACES)
            except Superseded as superseded:
                logger.info("not recorded: %s", superseded, extra={"action": "superseded"})
                return False
            except StoreError as error:
                logger.warning("the log is out of reach: %s", error, extra={"action": "append_retried"})
                await asyncio.sleep(STORE_PAUSE_S)
                await self._refresh()
            else:
                return True
        return False

    async def _refresh(self) -> None:
        try:
            await self.session.refresh()
        except StoreError as error:
            logger.debug("the log is still out of reach: %s", error)

    async def _listen(self) -> None:
        """Put the conversation's new events into the inbox, for ever."""
        store = self._surroundings.conversations.store
        while True:
            try:
                async with aclosing(store.subscribe_stream(self.session.stream, self.session.seq)) as batches:
                    async for batch in batches:
                        if batch.events:
                            self._inbox.put_nowait(batch.events)
            except (SlowSubscriber, StoreError) as error:
                logger.info("following a conversation again: %s", error, extra={"action": "resubscribed"})
            await asyncio.sleep(STORE_PAUSE_S)


def _resume(conversation: Conversation, now: datetime) -> None:
    if conversation.turn is not None:
        conversation.resume_turn(conversation.turn.number, conversation.turn.attempt, now=now)


def _start_turn(conversation: Conversation, now: datetime) -> None:
    conversation.start_turn(now=now)


def _expire(calls: tuple[str, ...], conversation: Conversation, now: datetime) -> None:
    conversation.expire(calls, now=now)


def _deadline(owed: tuple[Owed, ...]) -> datetime | None:
    return next((item.until for item in owed if isinstance(item, AwaitInput)), None)
