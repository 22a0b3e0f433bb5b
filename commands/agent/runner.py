"""The loop that works on one conversation: fold, start what is owed, wait for whatever comes first, again.

It is never deaf: while a model speaks or a tool runs, new events of the conversation, deadlines and a lost lease act
at once. What its tasks find out goes through one queue, so that one append follows the other.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from commands.agent.append_queue import AppendQueue, out_of_reach
from commands.agent.model_step import failing, model_step, open_turn
from commands.agent.news import News
from commands.agent.spending import Spending
from commands.agent.stopping import stop
from commands.agent.tool_dispatch import tool_dispatch
from commands.log_context import log_with
from commands.summaries import summary_state
from domain.errors import Superseded
from domain.event_store import StoreError
from domain.owes import AwaitInput, CallModel, CloseTurn, Expire, Owed, RunTools, StartTurn, owes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine
    from datetime import datetime

    from commands.agent.surroundings import Decide, Surroundings
    from commands.session import Session
    from domain.conversation import Conversation
    from domain.conversation_state import OpenTurn

MODEL = "model"
TOOLS_AT_ONCE = 16
"""So many calls of one conversation run at a time, each perhaps in a thread of its own; the others wait their turn."""


@dataclass(frozen=True, slots=True)
class Rest:
    """The conversation owes nothing before `due_at` (None: nothing at all) as of `seq`."""

    seq: int
    due_at: datetime | None


class Runner:
    """Works on one conversation, once, until it rests, another worker has it, or it is told to stop.

    `takeover` says that its former holder never let go: an open turn is then resumed under a new attempt first.
    """

    def __init__(self, session: Session, surroundings: Surroundings, *, takeover: bool) -> None:
        self.session = session
        self._surroundings = surroundings
        self._stirred = asyncio.Event()
        self._news = News(surroundings.conversations.store, session, self._stirred.set)
        self._queue = AppendQueue(session, self._stirred.set)
        self._context = surroundings.contexts.take(session)
        self._tasks: dict[str, asyncio.Task[Decide]] = {}
        self._spending = Spending()
        self._called_in: OpenTurn | None = None
        self._taking_over = takeover
        self._letting_go = self._abandoned = self._cut_off = False

    def let_go(self) -> None:
        """Start nothing more; what runs may end, and be recorded, and what has expired is closed."""
        self._letting_go = True
        self._stirred.set()

    def abandon(self) -> None:
        """Stop at once and append nothing more."""
        self._abandoned = True
        self._queue.give_up()
        self._stirred.set()

    @property
    def overtaken(self) -> bool:
        """Whether another worker goes on with the conversation, which stops this one."""
        return self._queue.overtaken

    @property
    def clean(self) -> bool:
        """Whether whoever comes next need not fear that something of an earlier worker still runs or is in flight."""
        return not (self._taking_over or self._cut_off or self._queue.in_flight or self.overtaken)

    async def run(self) -> Rest | None:
        """Work until the conversation rests; None when it stopped before that.

        Raises `ConversationNotFound` if it was deleted, `UnknownEventType`, and `StoreError` if it was abandoned while
        the log was away.
        """
        listening = asyncio.create_task(self._news.follow(), name="listening")
        try:
            if self._taking_over:
                await self._take_over()
            rest = await self._work()
            self._surroundings.contexts.keep(self.session.conversation_id, self._context)
            return rest
        finally:
            self._cut_off = any(key != MODEL for key in self._tasks)  # threads of theirs may run on
            self._queue.close()
            await self._cancel(list(self._tasks))
            await stop([listening])

    async def _take_over(self) -> None:
        if turn := self.session.conversation.turn:
            number, attempt = turn.number, turn.attempt
            await self._queue.append(lambda c, now: c.resume_turn(number, attempt, now=now))
        self._taking_over = self._abandoned

    async def _work(self) -> Rest | None:
        while not self._abandoned:
            self._stirred.clear()
            self._news.fold()
            await self._queue.settle()
            await self._record_what_ended()
            if self.overtaken:
                return None
            now = self._surroundings.conversations.clock.now()
            owed = owes(self.session.conversation, now)
            await self._stop_what_is_not_owed(owed)
            if await self._act([item for item in owed if isinstance(item, Expire)] if self._letting_go else owed):
                continue
            if not self._tasks:
                if self._letting_go and not all(isinstance(item, AwaitInput) for item in owed):
                    return None
                return Rest(self.session.seq, _deadline(owed))
            until = _deadline(owed)
            with suppress(TimeoutError):
                async with asyncio.timeout((until - now).total_seconds() if until else None):
                    await self._stirred.wait()
        return None

    async def _act(self, owed: Collection[Owed]) -> bool:
        """Start what is owed and does not run; True when something was decided, so that it must be asked again."""
        decisions: list[Decide] = []
        for item in owed:
            match item:
                case StartTurn():
                    decisions.append(partial(_start_turn, await self._summary()))
                case Expire(calls):
                    decisions.append(partial(_expire, calls))
                case CloseTurn(reason, detail):
                    exceeded = self._context.exceeded
                    decisions.append(failing(self.session.conversation, reason, detail=detail, compact=exceeded))
                case CallModel():
                    self._start(MODEL, self._call_model)
                case RunTools(calls):
                    waiting = [call_id for call_id in calls if call_id not in self._tasks]
                    for call_id in waiting[: max(0, TOOLS_AT_ONCE - len(self._tasks))]:
                        self._start(call_id, partial(self._run_tool, call_id))
        for decide in decisions:
            await self._queue.append(decide)
        return bool(decisions)

    async def _summary(self) -> int | None:
        """Say which summary is in force now: the next turn keeps it to its end."""
        store = self._surroundings.conversations.store
        while True:
            try:
                return (await summary_state(store, self.session.conversation_id)).to_seq
            except StoreError as error:
                if self._abandoned:
                    raise
                await out_of_reach(error)

    def _call_model(self) -> Coroutine[None, None, Decide]:
        self._spending, self._called_in = Spending(), open_turn(self.session.conversation)
        return model_step(self.session, self._surroundings, self._context, self._spending)

    def _run_tool(self, call_id: str) -> Coroutine[None, None, Decide]:
        return tool_dispatch(call_id, self.session, self._surroundings, self._context, self._queue.record)

    def _start(self, key: str, work: Callable[[], Coroutine[None, None, Decide]]) -> None:
        if key in self._tasks:
            return
        if turn := self.session.conversation.turn:
            log_with(turn=turn.number, correlation_id=str(turn.event_id))
        task = asyncio.create_task(_through_outages(work), name=key)
        task.add_done_callback(lambda _: self._stirred.set())
        self._tasks[key] = task

    async def _record_what_ended(self) -> None:
        for key in [key for key, task in self._tasks.items() if task.done()]:
            task = self._tasks.pop(key)
            if task.cancelled():
                raise RuntimeError(f"{key} was cancelled, and not by its runner")
            recorded = False
            try:
                with suppress(Superseded):  # a step of it could not be recorded: it has no say any more
                    recorded = await self._queue.append(task.result())
            finally:
                if key == MODEL:
                    self._surroundings.live.clear(self.session.conversation_id)
            if key == MODEL and not recorded:
                await self._report_usage()

    async def _stop_what_is_not_owed(self, owed: Collection[Owed]) -> None:
        wanted: set[str] = set()
        for item in owed:
            match item:
                case CallModel():
                    wanted.add(MODEL)
                case RunTools(calls):
                    wanted.update(calls)
        stopped = [key for key in self._tasks if key not in wanted]
        await self._cancel(stopped)
        if MODEL in stopped:
            await self._report_usage()

    async def _report_usage(self) -> None:
        """Record what a call used that left no reply, unless another worker has the conversation."""
        turn, usage = self._called_in, self._spending.all
        if turn is not None and usage:
            await self._queue.append(lambda conversation, now: conversation.report_usage(turn, usage, now=now))

    async def _cancel(self, keys: list[str]) -> None:
        await stop([self._tasks.pop(key) for key in keys])
        if MODEL in keys:
            self._surroundings.live.clear(self.session.conversation_id)


async def _through_outages(work: Callable[[], Coroutine[None, None, Decide]]) -> Decide:
    while True:  # only reading the history raises it, before anything was done
        try:
            return await work()
        except StoreError as error:
            await out_of_reach(error)


def _start_turn(summary_to_seq: int | None, conversation: Conversation, now: datetime) -> None:
    conversation.start_turn(now=now, summary_to_seq=summary_to_seq)


def _expire(calls: tuple[str, ...], conversation: Conversation, now: datetime) -> None:
    conversation.expire(calls, now=now)


def _deadline(owed: Collection[Owed]) -> datetime | None:
    return next((item.until for item in owed if isinstance(item, AwaitInput)), None)
