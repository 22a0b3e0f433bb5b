"""Whoever writes at once, from whatever knowledge, and whoever is killed in the middle: the rules hold, and no more.

People and workers hold what they loaded a while ago; their decisions lose races, lose answers, and are decided again
by the same code as in a server. Workers are killed with all that they had in flight, or stand still and wake up after
others have gone on. `REJOINDER_PROPERTY_RUNS` sets how many stories are tried (30).
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from commands.agent import append_queue
from commands.agent.append_queue import AppendQueue
from commands.conversations import Conversations
from commands.session import Session
from domain import events
from domain.conversation import Conversation
from domain.decisions import Decision, Rescheduling
from domain.errors import DomainError
from domain.event_store import StoreError
from domain.owes import CallModel, CloseTurn, Expire, RunTools, StartTurn, owes
from domain.wire import decode, stream_of
from infra.memory_event_store import MemoryEventStore
from tests.support.agents import StandingClock
from tests.support.conversation_rules import ConversationRules
from tests.support.given import (
    ADA,
    APPROVAL,
    BEN,
    CONVERSATION,
    ELICITATION,
    IN_BROWSER,
    message,
    ran,
    reply,
    wants,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from datetime import datetime
    from uuid import UUID

    from commands.agent.surroundings import Decide
    from commands.ports import KnownCommand
    from domain.conversation_state import OpenTurn
    from domain.event_store import Appended, NewEvent, StoredEvent
    from domain.owes import Owed

WORKERS_EVENTS = (events.TurnResumed, events.AssistantMsg, events.ToolStep)
"""What nobody but the worker that has the turn ever writes."""

CALLS: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.sampled_from(
        [
            {},
            {},
            {"error": "no such tool"},
            {"gated": True, "inquiry": APPROVAL},
            {"executor": "human", "inquiry": ELICITATION},
            {"executor": "client", "gated": True, "inquiry": APPROVAL},
        ]
    ),
    max_size=3,
)
DISTURBANCES = (
    *["somebody_wants"] * 6,
    *["somebody_does"] * 4,
    *["somebody_takes_the_conversation"] * 3,
    "a_worker_is_killed",
    "a_worker_hands_back",
    *["one_who_was_overtaken_works"] * 5,
    "time_passes",
    "an_answer_is_lost",
    "an_answer_is_lost",
)
COMMANDS = ("send", "send", "send", "resolve", "resolve", "resolve", "reschedule", "change", "cancel", "end")


class UncertainStore(MemoryEventStore):
    """The log in memory, of which some appends get no answer, written or not."""

    def __init__(self) -> None:
        super().__init__()
        self.lose: str | None = None

    async def append(self, stream: str, events: Sequence[NewEvent], expected: int) -> Appended:
        lost, self.lose = self.lose, None
        if lost == "before":
            raise StoreError("no answer, and not written")
        appended = await super().append(stream, events, expected)
        if lost == "after":
            raise StoreError("no answer, but written")
        return appended


@dataclass
class AtWork:
    """A worker: what it knows, and what it has in flight (the model's or a tool's answer, unrecorded)."""

    number: int
    session: Session
    queue: AppendQueue
    taking_over: bool
    in_flight: dict[str, Decide] = field(default_factory=dict)


@dataclass
class Intent:
    """A command of a person, decided on what was loaded a while ago."""

    session: Session
    decide: Callable[[Conversation, datetime], object]
    message_id: str | None = None
    resolves: str | None = None


class WritersMachine(ConversationRules):
    """Drives one conversation by several writers over a store."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.pause, append_queue.STORE_PAUSE_S = append_queue.STORE_PAUSE_S, 0.0
        append_queue.logger.disabled = True
        self.store, self.clock = UncertainStore(), StandingClock()
        self.clock.time = self.now
        self.conversations = Conversations(self.store, self.clock, self, self)
        self.workers: list[AtWork] = []
        self.holder: AtWork | None = None
        self.unclean = False
        self.claims = self.ids = 0
        self.intents: list[Intent] = []
        self.sent: dict[str, str] = {}
        self.decided: list[str] = []
        self.authors: dict[int, int] = {}

    def teardown(self) -> None:
        super().teardown()
        append_queue.STORE_PAUSE_S = self.pause
        append_queue.logger.disabled = False
        self.loop.close()

    async def find(self, conversation_id: UUID, command_id: UUID, *, up_to_position: int) -> KnownCommand | None:
        """Nobody repeats a command."""
        return None

    async def wake(self, conversation_id: UUID) -> None:
        """Workers look when the machine says so."""

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run it to its end, and read the log again as a store holds it."""
        try:
            return self.loop.run_until_complete(work)
        finally:
            stored: list[StoredEvent] = self.loop.run_until_complete(
                self.store.read(stream_of(CONVERSATION), after=len(self.log))
            )
            news = [decode(event) for event in stored]
            self.log += news
            self.conversation.fold(news)

    def load(self) -> Session:
        return cast("Session", self.run(self.conversations.load(CONVERSATION)))

    def new_id(self, prefix: str) -> str:
        self.ids += 1
        return f"{prefix}{self.ids}"

    @initialize(steps=st.integers(2, 5), attempts=st.integers(2, 4))
    def begin(self, steps: int, attempts: int) -> None:
        given = {"max_steps": steps, "max_attempts": attempts}
        session = Session(self.store, self.clock, Conversation.at(CONVERSATION))

        def decide(conversation: Conversation, now: datetime) -> None:
            conversation.start(tenant="t", owner="ada", title=None, settings=given, metadata={}, now=now, actor=ADA)
            conversation.send_message(message("m0"), now=now, actor=ADA)

        self.run(session.append(decide))
        self.sent["m0"] = "enqueue"

    @rule(data=st.data(), steps=st.integers(0, 6), disturb=st.sampled_from(DISTURBANCES))
    def work_and_be_disturbed(self, data: st.DataObject, steps: int, disturb: str) -> None:
        """Let whoever has the conversation work, then something happens."""
        if steps and (self.holder is None or self.holder.queue.overtaken):
            self.somebody_takes_the_conversation(data)
        for _ in range(steps):
            assert self.holder is not None
            self._works(self.holder, data)
        getattr(self, disturb)(data)

    # people

    def somebody_wants(self, data: st.DataObject) -> None:
        """Load the conversation and decide something about it, to be appended now or much later."""
        what = data.draw(st.sampled_from(COMMANDS), label="what")
        if what == "end" and data.draw(st.integers(0, 9), label="end") != 7:
            return
        session = self.load()
        intent = getattr(self, f"_{what}")(session, data)
        self.intents.append(intent)
        if data.draw(st.booleans(), label="at once"):
            self.somebody_does(data)

    def somebody_does(self, data: st.DataObject) -> None:
        """Append what somebody has wanted, however much has happened since."""
        if not self.intents:
            return
        intent = self.intents.pop(data.draw(st.integers(0, len(self.intents) - 1), label="whose"))
        try:
            self.run(intent.session.append(intent.decide))
        except (DomainError, StoreError):
            return  # refused, or its outcome is unknown to its author
        if intent.message_id:
            self.sent[intent.message_id] = "acknowledged"
        if intent.resolves:
            self.decided.append(intent.resolves)

    def _send(self, session: Session, data: st.DataObject) -> Intent:
        busy = data.draw(st.sampled_from(["enqueue", "steer", "interrupt", "reject"]), label="when_busy")
        new = message(self.new_id("m"), when_busy=busy)
        return Intent(session, lambda c, now: c.send_message(new, now=now, actor=ADA), message_id=new.message_id)

    def _resolve(self, session: Session, data: st.DataObject) -> Intent:
        call = data.draw(st.sampled_from([*session.conversation.calls, "unknown"]), label="call")
        outcome = data.draw(st.sampled_from(["approve", "edit", "reject", "answer"]), label="outcome")
        decision = Decision(call, cast("Any", outcome), args={"a": 2}, answer="Paris", inquiry=IN_BROWSER)
        return Intent(session, lambda c, now: c.resolve(decision, now=now, actor=BEN), resolves=call)

    def _reschedule(self, session: Session, data: st.DataObject) -> Intent:
        call = data.draw(st.sampled_from([*session.conversation.calls, "unknown"]), label="call")
        minutes = data.draw(st.sampled_from([None, 30]), label="minutes")
        again = Rescheduling(call, None if minutes is None else self.now + timedelta(minutes=minutes))
        return Intent(session, lambda c, now: c.reschedule(again, now=now, actor=BEN))

    def _change(self, session: Session, data: st.DataObject) -> Intent:
        given = {"max_steps": data.draw(st.integers(1, 4), label="max_steps")}
        return Intent(session, lambda c, now: c.change(title=None, settings=given, metadata={}, now=now, actor=ADA))

    def _cancel(self, session: Session, data: st.DataObject) -> Intent:
        return Intent(session, lambda c, now: c.cancel(reason=None, now=now, actor=ADA, partial_text="Cut"))

    def _end(self, session: Session, data: st.DataObject) -> Intent:
        return Intent(session, lambda c, now: c.end(reason=None, now=now, actor=ADA))

    # workers

    def somebody_takes_the_conversation(self, data: st.DataObject) -> None:
        """Claim it: handed back, from a worker that was killed, or from one that stands still and does not know."""
        takeover = self.unclean or self.holder is not None
        session = self.load()
        self.claims += 1
        worker = AtWork(self.claims, session, AppendQueue(session, lambda: None), takeover)
        self.workers = [*self.workers[-2:], worker]
        self.holder, self.unclean = worker, takeover

    def one_who_was_overtaken_works(self, data: st.DataObject) -> None:
        """Let somebody go on who perhaps does not know that the conversation is another's by now."""
        if others := [worker for worker in self.workers if worker is not self.holder]:
            worker = data.draw(st.sampled_from(others), label="who")
            for _ in range(data.draw(st.integers(1, 4), label="steps")):
                self._works(worker, data)

    def _works(self, worker: AtWork, data: st.DataObject) -> None:
        """Do one thing of what a runner does: read on, take over, start what is owed, record what has ended."""
        if data.draw(st.booleans(), label="reads on"):
            self.run(worker.session.refresh())
        if worker.queue.overtaken:
            return
        if worker.taking_over:
            worker.taking_over = False
            if turn := worker.session.conversation.turn:
                number, attempt = turn.number, turn.attempt
                self._append(worker, lambda c, now: c.resume_turn(number, attempt, now=now))
            if worker is self.holder:
                self.unclean = False
            return
        ended: bool = data.draw(st.booleans(), label="something has ended")
        if worker.in_flight and ended:
            key = data.draw(st.sampled_from(sorted(worker.in_flight)), label="what")
            self._append(worker, worker.in_flight.pop(key))
            return
        owed = owes(worker.session.conversation, self.now)
        wanted = {key for item in owed for key in _keys(item)}
        worker.in_flight = {key: decide for key, decide in worker.in_flight.items() if key in wanted}
        for item in owed:
            self._act(worker, item, data)

    def _act(self, worker: AtWork, item: Owed, data: st.DataObject) -> None:
        turn = worker.session.conversation.turn
        match item:
            case StartTurn():
                self._append(worker, lambda c, now: c.start_turn(now=now))
            case Expire(calls):
                self._append(worker, lambda c, now: c.expire(calls, now=now))
            case CloseTurn(reason) if turn:
                number, attempt = turn.number, turn.attempt
                self._append(worker, lambda c, now: c.fail_turn(number, attempt, reason, now=now))
            case CallModel() if turn and "model" not in worker.in_flight:
                worker.in_flight["model"] = self._model_call(worker, turn, data)
            case RunTools(calls) if turn:
                for call in calls:
                    if call not in worker.in_flight:
                        worker.in_flight[call] = self._tool(worker, turn, call, data)

    def _model_call(self, worker: AtWork, turn: OpenTurn, data: st.DataObject) -> Decide:
        number, attempt = turn.number, turn.attempt
        proposed = [wants(self.new_id("c"), **call) for call in data.draw(CALLS, label="calls")]
        said = reply(*proposed, step=turn.step + 1, context_seq=worker.session.seq)
        return lambda c, now: c.record_reply(number, attempt, said, now=now)

    def _tool(self, worker: AtWork, turn: OpenTurn, call: str, data: st.DataObject) -> Decide:
        number, attempt = turn.number, turn.attempt
        n = worker.session.conversation.calls[call].steps.get("draft", 0) + 1
        if n < 3 and data.draw(st.booleans(), label="step"):
            return lambda c, now: c.record_step(number, attempt, call, "draft", n, n, now=now)
        return lambda c, now: c.record_result(number, attempt, ran(call), now=now)

    def _append(self, worker: AtWork, decide: Decide) -> None:
        before = len(self.log)
        recorded = self.run(worker.queue.append(decide))
        news = self.log[before:]
        assert not news or recorded
        self.authors |= dict.fromkeys((event.seq for event in news), worker.number)

    def a_worker_is_killed(self, data: st.DataObject) -> None:
        """Lose all that it had in flight; whoever comes next takes over."""
        if self.holder:
            self.workers.remove(self.holder)
            self.holder, self.unclean = None, True

    def a_worker_hands_back(self, data: st.DataObject) -> None:
        """Let go, cleanly if nothing of it is in flight and nobody has overtaken it."""
        if self.holder:
            self.unclean = self.holder.taking_over or bool(self.holder.in_flight) or self.holder.queue.overtaken
            self.workers.remove(self.holder)
            self.holder = None

    def time_passes(self, data: st.DataObject) -> None:
        self.now += timedelta(minutes=data.draw(st.sampled_from([1, 30, 61]), label="minutes"))
        self.clock.time = self.now

    def an_answer_is_lost(self, data: st.DataObject) -> None:
        self.store.lose = data.draw(st.sampled_from(["before", "after"]), label="lost")

    # rules beyond those of any conversation

    @invariant()
    def l13_what_was_acknowledged_is_in_the_log_once(self) -> None:
        said = [event.message_id for event in self.log if isinstance(event, events.UserMsg)]
        assert len(said) == len(set(said))
        assert set(self.sent) <= set(said)
        people = [e.tool_call_id for e in self.log if isinstance(e, events.Resolution) and e.by == BEN]
        for call in self.decided:
            assert self.decided.count(call) <= people.count(call)

    @invariant()
    def h2_each_question_has_one_answer(self) -> None:
        open_questions: set[str] = set()
        for event in self.log:
            if isinstance(event, events.Suspension):
                open_questions.add(event.tool_call_id)
            if isinstance(event, events.Resolution):
                open_questions.remove(event.tool_call_id)

    @invariant()
    def t7_who_was_overtaken_in_a_turn_writes_nothing_more_in_it(self) -> None:
        newest, attempt = 0, 1
        for event in self.log:
            if isinstance(event, events.TurnStarted):
                newest, attempt = self.authors.get(event.seq, 0), 1
            elif isinstance(event, events.TurnResumed):
                newest, attempt = self.authors[event.seq], event.attempt
            elif isinstance(event, WORKERS_EVENTS):
                assert self.authors[event.seq] >= newest
                newest = self.authors[event.seq]
            if isinstance(event, events.AssistantMsg):
                assert event.attempt == attempt

    @invariant()
    def t3_no_step_has_two_replies(self) -> None:
        steps = [(event.turn, event.step) for event in self.log if isinstance(event, events.AssistantMsg)]
        assert len(steps) == len(set(steps))


def _keys(item: Owed) -> tuple[str, ...]:
    """Name what runs for this."""
    match item:
        case CallModel():
            return ("model",)
        case RunTools(calls):
            return calls
        case _:
            return ()


WritersMachine.TestCase.settings = settings(
    max_examples=int(os.environ.get("REJOINDER_PROPERTY_RUNS", "30")),
    stateful_step_count=40,
)
TestWhoeverWrites = pytest.mark.timeout(3_600)(WritersMachine.TestCase)
