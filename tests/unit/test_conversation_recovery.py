"""Whatever event a log ends in, `owes` alone says how to go on, and a worker that finds it so pays all that is open."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest

from commands.context import CommandContext
from commands.resolve_tool_call import ResolveToolCall, resolve_tool_call
from domain import events
from domain.conversation import Conversation
from domain.errors import ConversationIncomplete
from domain.owes import AwaitInput, CallModel, CloseTurn, Expire, Owed, RunTools, StartTurn, owes
from domain.scope import Scope
from domain.tools import Tool, ToolContext, as_tool
from domain.wire import encode, stream_of
from tests.support.agents import Office, assert_paid
from tests.support.given import (
    ADA,
    CONVERSATION,
    LATER,
    NOW,
    OPEN_TURN,
    Fact,
    asked,
    called,
    claimed,
    closed,
    copied_whole,
    finished,
    given,
    got,
    history,
    message,
    resolved,
    resumed,
    said,
    started,
    stepped,
    suspended,
)

if TYPE_CHECKING:
    from domain.event_envelope import ConversationEvent

COPY = {"copied_from": UUID(int=7)}
FORK = started(forked_from=UUID(int=8), forked_seq=9)
BATCH = (*OPEN_TURN, said(""), called("c1"), called("c2"))
GATED = (*OPEN_TURN, said(""), called("c1", gated=True))
ASKED = (*OPEN_TURN, said(""), called("c1", name="ask", executor="human", args={"question": "?"}))
CLIENT = (*OPEN_TURN, said(""), called("c1", name="locate", executor="client", gated=True, args={}))
ONCE = (*OPEN_TURN, said(""), called("c1", name="charge"))
APPROVAL = suspended("c1", expires_at=LATER)
QUESTION = suspended("c1", "elicitation", expires_at=LATER)
RUN_BOTH = RunTools(("c1", "c2"))
RUN = RunTools(("c1",))
AWAIT = AwaitInput(("c1",), LATER)
WHOLE_TURN = (asked(), claimed(), said(), closed())
APPROVE = ResolveToolCall(outcome="approve")


def copied(fact: Fact) -> Fact:
    """Make the fact a copy."""
    return replace(fact, fields=fact.fields | COPY)


@dataclass(frozen=True)
class Shape:
    """A log's facts and what it owes, before the deadline and `later`; then which calls run once people answered.

    `asks` is how often the model is called, `statuses` how calls end when they are answered.
    """

    facts: tuple[Fact, ...]
    owed: tuple[Owed, ...]
    later: tuple[Owed, ...] | None = None
    runs: tuple[str, ...] = ()
    asks: int = 1
    statuses: dict[str, str] = field(default_factory=dict)


SHAPES = {
    "conversation_started": Shape((started(),), (), asks=0),
    "conversation_changed": Shape((started(), asked(respond=False)), (), asks=0),
    "user_msg": Shape((started(), asked()), (StartTurn(("m1",)),)),
    "user_msg, twice": Shape((started(), asked(), asked("m2")), (StartTurn(("m1", "m2")),)),
    "user_msg that owes no answer": Shape((started(), asked(respond=False)), (), asks=0),
    "user_msg that enqueues in a turn": Shape((*OPEN_TURN, asked("m2")), (CallModel(),), asks=2),
    "user_msg that steers": Shape((*OPEN_TURN, asked("m2", when_busy="steer")), (CallModel(),)),
    "turn_started": Shape(OPEN_TURN, (CallModel(),)),
    "turn_resumed": Shape((*OPEN_TURN, resumed()), (CallModel(),)),
    "turn_resumed for the fifth time": Shape((*OPEN_TURN, *[resumed()] * 5), (CloseTurn("max_attempts"),), asks=0),
    "turn_resumed with calls": Shape((*BATCH, resumed()), (RUN_BOTH,), runs=("c1", "c2")),
    "assistant_msg that did not see who steers": Shape(
        (*OPEN_TURN, asked("m2", when_busy="steer"), said(context_seq=3)), (CallModel(),)
    ),
    "tool_call": Shape(BATCH, (RUN_BOTH,), runs=("c1", "c2")),
    "tool_call, some without result": Shape((*BATCH, got("c1")), (RunTools(("c2",)),), runs=("c2",)),
    "tool_call of a person": Shape((*ASKED, QUESTION), (AWAIT,), (Expire(("c1",)),), statuses={"c1": "ok"}),
    "tool_step": Shape((*BATCH, stepped("c1", value="kept")), (RUN_BOTH,), runs=("c1", "c2")),
    "tool_step of what must not rerun": Shape((*ONCE, stepped("c1", "started")), (RUN,), statuses={"c1": "error"}),
    "tool_call of what must not rerun": Shape(ONCE, (RUN,), runs=("c1",)),
    "tool_result, the last": Shape((*BATCH, got("c1"), got("c2")), (CallModel(),)),
    "tool_result of the last step": Shape(
        (started(settings={"max_steps": 1}), asked(), claimed(), said(""), called(), got()),
        (CloseTurn("max_steps"),),
        asks=0,
    ),
    "suspension": Shape((*GATED, APPROVAL), (AWAIT,), (Expire(("c1",)),), runs=("c1",)),
    "suspension without deadline": Shape((*GATED, suspended()), (AwaitInput(("c1",), None),), runs=("c1",)),
    "suspension that puts the deadline off": Shape(
        (*GATED, suspended(expires_at=NOW), APPROVAL), (AWAIT,), (Expire(("c1",)),), runs=("c1",)
    ),
    "suspension of a gated client tool": Shape(
        (*CLIENT, APPROVAL), (AWAIT,), (Expire(("c1",)),), statuses={"c1": "ok"}
    ),
    "suspension in a mixed batch": Shape(
        (*GATED, called("c2"), APPROVAL),
        (RunTools(("c2",)), AWAIT),
        (RunTools(("c2",)), Expire(("c1",))),
        runs=("c2", "c1"),
    ),
    "resolution: approved": Shape((*GATED, APPROVAL, resolved()), (RUN,), runs=("c1",)),
    "resolution: edited": Shape((*GATED, APPROVAL, resolved(outcome="edited", args={"a": 2})), (RUN,), runs=("c1",)),
    "resolution: rejected": Shape(
        (*GATED, APPROVAL, resolved(outcome="rejected"), got(status="rejected")), (CallModel(),)
    ),
    "resolution: answered": Shape((*ASKED, QUESTION, resolved(outcome="answered"), got()), (CallModel(),)),
    "resolution: expired": Shape(
        (*GATED, APPROVAL, resolved(outcome="expired"), got(status="expired")), (CallModel(),)
    ),
    "resolution: approved, and the client is asked": Shape(
        (*CLIENT, APPROVAL, resolved(), suspended("c1", "client", expires_at=LATER)),
        (AWAIT,),
        (Expire(("c1",)),),
        statuses={"c1": "ok"},
    ),
    "resolution of one of two": Shape(
        (*GATED, called("c2", gated=True), APPROVAL, suspended("c2", expires_at=LATER), resolved("c2")),
        (RunTools(("c2",)), AWAIT),
        (RunTools(("c2",)), Expire(("c1",))),
        runs=("c2", "c1"),
    ),
    "turn_ended: completed": Shape((*OPEN_TURN, said(), closed()), (), asks=0),
    "turn_ended: failed": Shape((*OPEN_TURN, closed("failed", reason="auth")), (), asks=0),
    "turn_ended: failed, and another message": Shape(
        (*OPEN_TURN, closed("failed", reason="auth"), asked("m2")), (StartTurn(("m2",)),)
    ),
    "turn_ended: cancelled, and another message": Shape(
        (*OPEN_TURN, asked("m2"), closed("cancelled", partial_text="I was")), (StartTurn(("m2",)),)
    ),
    "turn_ended: cancelled with its calls": Shape(
        (*GATED, APPROVAL, resolved(outcome="cancelled"), got(status="cancelled"), closed("cancelled")), (), asks=0
    ),
    "conversation_ended": Shape((started(), asked(), finished()), (), asks=0),
    "fork_completed": Shape((FORK, *map(copied, WHOLE_TURN), copied_whole()), (), asks=0),
    "fork_completed, and a message": Shape(
        (FORK, *map(copied, WHOLE_TURN), copied_whole(), asked("m2")), (StartTurn(("m2",)),)
    ),
}
COPYING = {
    "conversation_started, as a fork": (FORK,),
    "a copied user_msg": (FORK, copied(asked())),
    "a copied turn_started": (FORK, copied(asked()), copied(claimed())),
    "a copied tool_call": (FORK, *map(copied, (asked(), claimed(), said(""), called()))),
    "a copied turn_ended": (FORK, *map(copied, WHOLE_TURN)),
    "a copied fork_completed": (FORK, copied(copied_whole()), copied(asked())),
}


class Workshop:
    """Tools that note which call ran, and people who answer what is asked."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.drafts: dict[str, str] = {}
        tools: list[Tool] = [
            as_tool(self.tool),
            as_tool(self.charge, rerun=False),
            as_tool(ask, executor="human"),
            as_tool(locate, executor="client", gate="always"),
        ]
        self.office = Office(tools=tuple(tools))
        self.office.clock.time = NOW

    async def tool(self, ctx: ToolContext, a: int) -> str:
        """Do something in steps."""
        self.runs.append(ctx.tool_call_id)
        self.drafts[ctx.tool_call_id] = await ctx.step("draft", lambda: "made anew")
        return f"done with {a}"

    async def charge(self, ctx: ToolContext, a: int) -> str:
        """Do something that must not happen twice."""
        self.runs.append(ctx.tool_call_id)
        return f"charged {a}"

    async def remember(self, log: list[ConversationEvent]) -> None:
        """Store a log as a killed process left it."""
        await self.office.store.append(stream_of(CONVERSATION), [encode(event) for event in log], 0)

    async def go_on(self, *, takeover: bool) -> list[ConversationEvent]:
        """Let workers run, and people answer when only they are waited for, until nothing is owed; return the log."""
        for _ in range(10):
            await (await self.office.runner(CONVERSATION, takeover=takeover)).run()
            takeover = False
            conversation = (await self.office.conversations.load(CONVERSATION)).conversation
            if not (owed := owes(conversation, self.office.clock.now())):
                return await self.office.log(CONVERSATION)
            assert all(isinstance(item, AwaitInput) for item in owed), owed
            for call in conversation.calls.values():
                assert call.question is not None
                await self.answer(call.tool_call_id, call.question.kind)
        raise AssertionError(f"still owed: {owed}")

    async def answer(self, tool_call_id: str, kind: str) -> None:
        """Do what a person or client does."""
        answers: dict[str, Any] = {"elicitation": "Paris", "client": {"lat": 52.5}}
        body = ResolveToolCall(outcome="answer", answer=answers[kind]) if kind in answers else APPROVE
        context = CommandContext(Scope("acme", "ada"), uuid4(), "hash", keyed=False)
        office = self.office
        await resolve_tool_call(office.conversations, office.toolset, 3600, CONVERSATION, tool_call_id, body, context)


def ask(question: str) -> str:  # type: ignore[empty-body]  # a person answers
    """Ask the person."""


def locate() -> dict[str, float]:  # type: ignore[empty-body]  # the client answers
    """Ask the client."""


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_t3_what_a_log_owes_follows_from_its_end(shape: Shape) -> None:
    ended = given(*shape.facts)
    ended.and_owes(*shape.owed)
    ended.and_owes(*(shape.owed if shape.later is None else shape.later), at=LATER)


@pytest.mark.parametrize("takeover", [False, True], ids=["handed back", "taken over"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
async def test_t3_t4_t5_a_worker_that_finds_any_log_goes_on_exactly_where_it_stops(
    shape: Shape, takeover: bool
) -> None:
    workshop, before = Workshop(), history(*shape.facts)
    await workshop.remember(before)

    log = await workshop.go_on(takeover=takeover)

    assert log[: len(before)] == before, "the past was changed"
    assert len(workshop.office.model.requests) == shape.asks
    assert workshop.runs == list(shape.runs)
    news = log[len(before) :]
    if shape.owed:
        assert_paid(log)
    else:
        assert news == []
    if takeover and Conversation.at(CONVERSATION).fold(before).turn:
        assert isinstance(news[0], events.TurnResumed)
    else:
        assert not any(isinstance(event, events.TurnResumed) for event in news)
    ended = {event.tool_call_id: event.status for event in news if isinstance(event, events.ToolResult)}
    assert ended == dict.fromkeys(shape.runs, "ok") | shape.statuses
    for event in before:
        if isinstance(event, events.ToolStep) and event.step == "draft":
            assert workshop.drafts[event.tool_call_id] == event.value


@pytest.mark.parametrize("takeover", [False, True], ids=["handed back", "taken over"])
@pytest.mark.parametrize("name", [name for name, shape in SHAPES.items() if shape.later])
async def test_h9_a_worker_that_starts_after_the_deadline_expires_what_nobody_answered(
    name: str, takeover: bool
) -> None:
    shape, workshop = SHAPES[name], Workshop()
    await workshop.remember(history(*shape.facts))
    workshop.office.clock.time = LATER

    log = await workshop.go_on(takeover=takeover)

    assert_paid(log)
    ended = {event.tool_call_id: event.status for event in log if isinstance(event, events.ToolResult)}
    assert ended.pop("c1") == "expired"
    assert set(ended.values()) <= {"ok"}
    assert len(workshop.office.model.requests) == shape.asks


@pytest.mark.parametrize("takeover", [False, True], ids=["handed back", "taken over"])
@pytest.mark.parametrize("facts", COPYING.values(), ids=COPYING)
async def test_a_fork_that_is_still_being_copied_owes_nothing_and_takes_nothing(
    facts: tuple[Fact, ...], takeover: bool
) -> None:
    given(*facts).and_owes().when(lambda c: c.send_message(message(), now=NOW, actor=ADA)).then_refused(
        ConversationIncomplete
    )
    workshop, before = Workshop(), history(*facts)
    await workshop.remember(before)

    assert await workshop.go_on(takeover=takeover) == before
