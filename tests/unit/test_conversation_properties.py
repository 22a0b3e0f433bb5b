"""Whatever people and workers do, and however stale their inputs are, the rules of a conversation hold.

`REJOINDER_PROPERTY_RUNS` sets how many random conversations are tried (60).
"""

from __future__ import annotations

import json
import os
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from domain import events
from domain.conversation import Conversation
from domain.decisions import Decision, Rescheduling
from domain.errors import DomainError
from domain.owes import AwaitInput, CallModel, CloseTurn, Expire, RunTools, StartTurn, owes
from domain.scope import Actor
from domain.wire import decode
from domain.working_set import working_set
from tests.support.conversation_rules import ConversationRules
from tests.support.given import (
    APPROVAL,
    ELICITATION,
    IN_BROWSER,
    message,
    ran,
    reply,
    stored,
    wants,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from domain.conversation_state import OpenTurn
    from domain.event_envelope import ConversationEvent
    from domain.owes import Owed

PEOPLE = st.sampled_from([Actor(kind="user", id=name) for name in ("ada", "ben")])
CALLS: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.sampled_from(
        [
            {},
            {"error": "no such tool"},
            {"gated": True, "inquiry": APPROVAL},
            {"executor": "human", "inquiry": ELICITATION},
            {"executor": "client", "inquiry": IN_BROWSER},
            {"executor": "client", "gated": True, "inquiry": APPROVAL},
        ]
    ),
    max_size=3,
)
OUTCOMES = st.sampled_from(["approve", "edit", "reject", "answer"])
STALENESS = st.sampled_from([0, 0, 0, 0, -1, 1])
CUT = st.sampled_from([None, "Cut"])
WHEN_BUSY = st.sampled_from(["enqueue", "steer", "interrupt", "reject"])

DISTURBANCES = (
    "send",
    "send",
    "send",
    "wait",
    "change",
    "resolve",
    "reschedule",
    "hear_the_model",
    "repeat_a_reply",
    "crash",
    "work_from_stale_knowledge",
    "work_from_stale_knowledge",
    "cancel",
    "end",
)


class ConversationMachine(ConversationRules):
    """Drives one conversation with commands that may come too late or twice."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = 0
        self.requests: dict[tuple[int, int, int], int] = {}
        self.seen: list[dict[str, Any]] = []

    def run(self, command: Callable[[Conversation], object]) -> None:
        """Decide on a copy, and append what comes of it as a store would hold it."""
        trial = self.conversation.copied()
        try:
            command(trial)
        except DomainError:
            return
        decided = [decode(stored(event)) for event in cast("list[ConversationEvent]", list(trial.collect_events()))]
        self.conversation.fold(decided)
        self.log += decided

    def new_id(self, prefix: str) -> str:
        self.ids += 1
        return f"{prefix}{self.ids}"

    def some_call(self, data: st.DataObject) -> str:
        known = [event.tool_call_id for event in self.log if isinstance(event, events.ToolCall)]
        return data.draw(st.sampled_from([*self.conversation.calls, *known[-3:], "unknown"]), label="tool_call_id")

    def held(self, data: st.DataObject) -> tuple[int, int]:
        """Return a (turn, attempt) that may be stale, or from nowhere."""
        turn = self.conversation.turn
        number, attempt = (turn.number, turn.attempt) if turn else (self.conversation.turns, 1)
        return number + data.draw(STALENESS), attempt + data.draw(STALENESS)

    @initialize(steps=st.integers(1, 4), attempts=st.integers(1, 3), who=PEOPLE)
    def start(self, steps: int, attempts: int, who: Actor) -> None:
        given = {"max_steps": steps, "max_attempts": attempts}
        start = partial(Conversation.start, tenant="t", owner="ada", title=None, settings=given, metadata={})
        self.run(lambda c: start(c, now=self.now, actor=who))
        self.run(lambda c: c.send_message(message(self.new_id("m")), now=self.now, actor=who))

    @rule(data=st.data(), steps=st.integers(0, 6), disturb=st.sampled_from(DISTURBANCES))
    def work_and_be_disturbed(self, data: st.DataObject, steps: int, disturb: str) -> None:
        for _ in range(steps):
            if owed := owes(self.conversation, self.now):
                self.do(data.draw(st.sampled_from(owed), label="owed"), data)
        getattr(self, disturb)(data)

    def send(self, data: st.DataObject) -> None:
        who, partial_text = data.draw(PEOPLE), data.draw(CUT)
        respond = data.draw(st.sampled_from([True, True, True, False]), label="respond")
        new = message(self.new_id("m"), when_busy=data.draw(WHEN_BUSY), respond=respond)
        self.run(lambda c: c.send_message(new, now=self.now, actor=who, partial_text=partial_text))

    def change(self, data: st.DataObject) -> None:
        who, given = data.draw(PEOPLE), {"max_steps": data.draw(st.integers(1, 4))}
        self.run(lambda c: c.change(title=None, settings=given, metadata=given, now=self.now, actor=who))

    def wait(self, data: st.DataObject) -> None:
        self.now += timedelta(minutes=data.draw(st.sampled_from([1, 59, 60, 61, 120])))

    def do(self, owed: Owed, data: st.DataObject) -> None:
        """Do what is owed, as a worker or a person would."""
        turn = self.conversation.turn
        match owed:
            case StartTurn():
                self.run(lambda c: c.start_turn(now=self.now))
            case CallModel() if turn:
                self.request(turn.number, turn.attempt, turn.step + 1)
                if data.draw(st.sampled_from([True, True, False]), label="heard at once"):
                    self.hear((turn.number, turn.attempt, turn.step + 1), data)
            case RunTools(calls) if turn:
                self.run_a_tool(turn, data.draw(st.sampled_from(calls)), data)
            case AwaitInput(pending):
                self.resolve_one(data.draw(st.sampled_from(pending)), data)
            case Expire(calls):
                self.run(lambda c: c.expire(calls, now=self.now))
            case CloseTurn(reason) if turn:
                self.run(lambda c: c.fail_turn(turn.number, turn.attempt, reason, now=self.now))

    def run_a_tool(self, turn: OpenTurn, call: str, data: st.DataObject) -> None:
        n = self.conversation.calls[call].steps.get("draft", 0) + 1
        if data.draw(st.booleans(), label="step"):
            self.run(lambda c: c.record_step(turn.number, turn.attempt, call, "draft", n, n, now=self.now))
        else:
            self.run(lambda c: c.record_result(turn.number, turn.attempt, ran(call), now=self.now))

    def request(self, turn: int, attempt: int, step: int) -> None:
        """Call the model: C3 holds from request to request."""
        rendered = working_set(self.log, system_prompt="Be kind.", model="demo")
        assert json.dumps(rendered).startswith(json.dumps(self.seen)[:-1])
        self.seen = rendered
        self.requests[turn, attempt, step] = self.conversation.version

    def hear(self, request: tuple[int, int, int], data: st.DataObject) -> None:
        """Record the model's reply to a request, which may have been made long ago."""
        turn, attempt, step = request
        proposed = [wants(self.new_id("c"), **call) for call in data.draw(CALLS, label="calls")]
        heard = reply(*proposed, step=step, context_seq=self.requests.pop(request))
        self.run(lambda c: c.record_reply(turn, attempt, heard, now=self.now))

    def hear_the_model(self, data: st.DataObject) -> None:
        if self.requests:
            self.hear(data.draw(st.sampled_from(list(reversed(self.requests))), label="request"), data)

    def work_from_stale_knowledge(self, data: st.DataObject) -> None:
        turn, attempt = self.held(data)
        call, n = self.some_call(data), data.draw(st.integers(1, 3))
        commands: dict[str, Callable[[Conversation], object]] = {
            "result": lambda c: c.record_result(turn, attempt, ran(call), now=self.now),
            "step": lambda c: c.record_step(turn, attempt, call, "draft", n, n, now=self.now),
            "resume": lambda c: c.resume_turn(turn, attempt, now=self.now),
            "fail": lambda c: c.fail_turn(turn, attempt, "auth", now=self.now),
            "expire": lambda c: c.expire([call, "unknown"], now=self.now),
            "start": lambda c: c.start_turn(now=self.now),
        }
        self.run(commands[data.draw(st.sampled_from(sorted(commands)))])

    def repeat_a_reply(self, data: st.DataObject) -> None:
        turn, attempt = self.held(data)
        step, open_turn = data.draw(st.integers(1, 3)), self.conversation.turn
        if open_turn and (turn, attempt) == (open_turn.number, open_turn.attempt):
            step = min(step, open_turn.step)
        before = len(self.log)
        self.run(lambda c: c.record_reply(turn, attempt, reply(step=step, context_seq=1), now=self.now))
        assert len(self.log) == before

    def crash(self, data: st.DataObject) -> None:
        if turn := self.conversation.turn:
            self.run(lambda c: c.resume_turn(turn.number, turn.attempt, now=self.now))

    def resolve(self, data: st.DataObject) -> None:
        self.resolve_one(self.some_call(data), data)

    def resolve_one(self, call: str, data: st.DataObject) -> None:
        outcome, inquiry, who = data.draw(OUTCOMES), data.draw(st.sampled_from([IN_BROWSER, None])), data.draw(PEOPLE)
        decision = Decision(call, cast("Any", outcome), args={"a": 2}, answer="Paris", inquiry=inquiry)
        self.run(lambda c: c.resolve(decision, now=self.now, actor=who))

    def reschedule(self, data: st.DataObject) -> None:
        who, minutes = data.draw(PEOPLE), data.draw(st.sampled_from([None, -1, 30]))
        until = None if minutes is None else self.now + timedelta(minutes=minutes)
        again = Rescheduling(self.some_call(data), until)
        self.run(lambda c: c.reschedule(again, now=self.now, actor=who))

    def cancel(self, data: st.DataObject) -> None:
        who, partial_text = data.draw(PEOPLE), data.draw(CUT)
        self.run(lambda c: c.cancel(reason=None, now=self.now, actor=who, partial_text=partial_text))

    def end(self, data: st.DataObject) -> None:
        if data.draw(st.integers(0, 9)) == 7:
            self.run(lambda c: c.end(reason=None, now=self.now, actor=data.draw(PEOPLE)))


ConversationMachine.TestCase.settings = settings(
    max_examples=int(os.environ.get("REJOINDER_PROPERTY_RUNS", "60")),
    stateful_step_count=40,
)
TestWhateverHappens = pytest.mark.timeout(3_600)(ConversationMachine.TestCase)
