"""Given these events, when a command runs, then it triggers those: a small language for the rules of conversations."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast
from uuid import UUID

from api.transfer.reader import read_events
from domain import events
from domain.conversation import Conversation
from domain.decisions import Decision, Inquiry, Message, Outcome, ProposedCall, Reply
from domain.event_envelope import ConversationEvent
from domain.event_store import StoredEvent
from domain.owes import owes
from domain.parts import Part, text_of, text_part
from domain.scope import Actor
from domain.wire import decode, encode, stream_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from domain.events import Executor
    from domain.owes import Owed
    from domain.usage import Usage

Event = TypeVar("Event", bound=ConversationEvent)

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
CONVERSATION = UUID("0192f1a2-0000-7000-8000-000000000001")
ADA, BEN, EVE = (Actor(kind="user", id=name) for name in ("ada", "ben", "eve"))

APPROVAL = Inquiry("approval", "May this run?", None, 3600)
ELICITATION = Inquiry("elicitation", "Which one?", {"type": "string"}, 3600)
IN_BROWSER = Inquiry("client", "Run this in the browser", None, 7200)


@dataclass(frozen=True, slots=True)
class Fact:
    """An event to be; what `fields` leaves out follows from the conversation so far."""

    type: type[ConversationEvent]
    fields: dict[str, Any]
    by: Actor = ADA
    follows: Callable[[Conversation], dict[str, Any]] = field(default=lambda conversation: {})

    def after(self, conversation: Conversation) -> ConversationEvent:
        """Make the event that comes next."""
        turn = conversation.turn if self.type not in (events.UserMsg, events.ConversationChanged) else None
        return self.type.model_validate(
            {
                "originator_id": conversation.id,
                "originator_version": conversation.version + 1,
                "timestamp": NOW,
                "correlation_id": turn.event_id if turn else None,
                "actor": self.by,
                **self.follows(conversation),
                **self.fields,
            }
        )


def started(**fields: Any) -> Fact:
    """The conversation exists."""
    return Fact(events.ConversationStarted, {"tenant": "acme", "owner": "ada", **fields})


def changed(**fields: Any) -> Fact:
    """Settings and metadata were changed."""
    return Fact(events.ConversationChanged, fields)


def asked(message_id: str = "m1", *, by: Actor = ADA, text: str = "Hello", **fields: Any) -> Fact:
    """Somebody said something."""
    return Fact(events.UserMsg, {"message_id": message_id, "content": [text_part(text)], **fields}, by)


def claimed(**fields: Any) -> Fact:
    """A worker started the next turn, for all that waits."""
    return Fact(
        events.TurnStarted,
        fields,
        follows=lambda c: {
            "turn": c.turns + 1,
            "answers": list(c.waiting),
            "settings_seq": c.settings_seq,
            "actor": list(c.waiting.values())[-1].actor,
        },
    )


def resumed() -> Fact:
    """Another worker took the turn over."""
    return Fact(events.TurnResumed, {}, follows=lambda c: {**_turn(c), "attempt": c.turn.attempt + 1 if c.turn else 1})


def said(text: str = "Hi", **fields: Any) -> Fact:
    """The model replied, having seen all so far."""
    content = [text_part(text)] if text else []
    return Fact(
        events.AssistantMsg,
        {"content": content, "model": "demo", "finish_reason": "stop", **fields},
        follows=lambda c: {
            **_turn(c),
            "attempt": c.turn.attempt if c.turn else 1,
            "step": c.turn.step + 1 if c.turn else 1,
            "context_seq": c.version,
        },
    )


def called(tool_call_id: str = "c1", *, executor: Executor = "server", **fields: Any) -> Fact:
    """The model wants a tool."""
    data = {"tool_call_id": tool_call_id, "name": "tool", "args": {"a": 1}, "executor": executor, **fields}
    return Fact(events.ToolCall, data, follows=_turn)


def suspended(tool_call_id: str = "c1", kind: events.SuspensionKind = "approval", **fields: Any) -> Fact:
    """Somebody was asked."""
    return Fact(events.Suspension, {"tool_call_id": tool_call_id, "kind": kind, "prompt": "?", **fields})


def resolved(
    tool_call_id: str = "c1", outcome: events.ResolutionOutcome = "approved", *, by: Actor = ADA, **fields: Any
) -> Fact:
    """Somebody answered."""
    return Fact(events.Resolution, {"tool_call_id": tool_call_id, "outcome": outcome, "by": by, **fields}, by)


def stepped(tool_call_id: str = "c1", step: str = "draft", n: int = 1, value: Any = None) -> Fact:
    """A tool made a checkpoint."""
    return Fact(events.ToolStep, {"tool_call_id": tool_call_id, "step": step, "n": n, "value": value})


def got(tool_call_id: str = "c1", status: events.ResultStatus = "ok", text: str = "done") -> Fact:
    """A call has its result."""
    return Fact(events.ToolResult, {"tool_call_id": tool_call_id, "status": status, "content": [text_part(text)]})


def closed(outcome: events.TurnOutcome = "completed", **fields: Any) -> Fact:
    """The turn ended."""
    return Fact(events.TurnEnded, {"outcome": outcome, **fields}, follows=_turn)


def reported(*usage: Usage, **fields: Any) -> Fact:
    """Usage of a call that left no reply was recorded."""
    return Fact(events.UsageReported, {"purpose": "turn", "usage": list(usage), **fields}, follows=_turn)


def finished() -> Fact:
    """The conversation was ended."""
    return Fact(events.ConversationFinished, {})


def copied_whole() -> Fact:
    """A fork's copies are whole."""
    return Fact(events.ForkCompleted, {})


def _turn(conversation: Conversation) -> dict[str, Any]:
    return {"turn": conversation.turns}


OPEN_TURN = (started(), asked(), claimed())
GATED_CALL = (*OPEN_TURN, said(""), called(gated=True), suspended(expires_at=LATER))


def message(message_id: str = "m2", text: str = "And?", **fields: Any) -> Message:
    """Make a message to send."""
    return Message(message_id, [text_part(text)], **fields)


def approve(tool_call_id: str = "c1", **fields: Any) -> Decision:
    """Make an approval."""
    return Decision(tool_call_id, "approve", **fields)


def edit(tool_call_id: str = "c1", *, args: Any, **fields: Any) -> Decision:
    """Make an approval with other arguments."""
    return Decision(tool_call_id, "edit", args=args, **fields)


def reject(tool_call_id: str = "c1", *, reason: str | None = None) -> Decision:
    """Make a rejection."""
    return Decision(tool_call_id, "reject", reason=reason)


def answer(tool_call_id: str = "c1", *, said: Any = "Paris") -> Decision:
    """Make an answer."""
    return Decision(tool_call_id, "answer", answer=said)


def reply(*calls: ProposedCall, step: int = 1, context_seq: int = 3, text: str = "Hi") -> Reply:
    """Make a model's reply."""
    return Reply(step, [text_part(text)], "demo", "stop", context_seq, calls)


def wants(tool_call_id: str = "c1", *, executor: Executor = "server", **fields: Any) -> ProposedCall:
    """Make a call that the model wants."""
    data: dict[str, Any] = {"provider_id": "call_0", "name": "tool", "args": {"a": 1}, **fields}
    return ProposedCall(tool_call_id=tool_call_id, executor=executor, **data)


def ran(tool_call_id: str = "c1", status: Literal["ok", "error"] = "ok", text: str = "done") -> Outcome:
    """Make the outcome of a server call."""
    return Outcome(tool_call_id, status, [Part(type="text", text=text)])


def stored(event: ConversationEvent) -> StoredEvent:
    """Write an event as a store would hold it."""
    new = encode(event)
    return StoredEvent(
        stream_of(event.originator_id), event.seq, event.seq, new.event_id, new.type, new.data, new.metadata
    )


def history(*facts: Fact) -> list[ConversationEvent]:
    """Make the events of these facts, as they come back from a store."""
    conversation, log = Conversation.at(CONVERSATION), []
    for fact in facts:
        event = decode(stored(fact.after(conversation)))
        conversation.fold([event])
        log.append(event)
    return log


def given(*facts: Fact) -> Scenario:
    """Begin with these events."""
    return Scenario(history(*facts))


def given_file(path: Path) -> Scenario:
    """Begin with the one conversation of an exported file, as with the log of a bug report."""
    log = [decode(event) for event in read_events(path) if event.type in events.EVENT_TYPES]
    assert len({event.originator_id for event in log}) == 1, f"{path} holds several conversations"
    return Scenario(log)


class Scenario:
    """A conversation whose log is `log`; `triggered` is what the newest command decided."""

    def __init__(self, log: Iterable[ConversationEvent]) -> None:
        self.log = list(log)
        self.triggered: list[ConversationEvent] = []
        self._refusal: Exception | None = None

    @property
    def conversation(self) -> Conversation:
        """The fold of the log."""
        return Conversation.at(self.log[0].originator_id if self.log else CONVERSATION).fold(self.log)

    def when(self, command: Callable[[Conversation], Any]) -> Self:
        """Run a command; what it triggers is stored and read again."""
        assert self._refusal is None, self._refusal
        conversation = self.conversation
        try:
            command(conversation)
        except Exception as error:
            self._refusal = error
            self.triggered = []
        else:
            decided = cast("list[ConversationEvent]", list(conversation.collect_events()))
            self.triggered = [decode(stored(event)) for event in decided]
            assert self.triggered == decided, "what is read back must be what was decided"
        self.log += self.triggered
        return self

    def then(self, *types: type[ConversationEvent]) -> Self:
        """Expect that exactly events of these types were triggered."""
        if self._refusal:
            raise self._refusal
        assert [type(event) for event in self.triggered] == list(types)
        return self

    def then_nothing(self) -> Self:
        """Expect that nothing was triggered."""
        return self.then()

    def then_refused(self, error: type[Exception], match: str | None = None) -> Self:
        """Expect that the command was refused by this error."""
        assert isinstance(self._refusal, error), self._refusal or self.triggered
        assert match is None or match in str(self._refusal)
        self._refusal = None
        return self

    def and_owes(self, *owed: type[Owed] | Owed, at: datetime = NOW) -> Self:
        """Expect what the conversation owes at a time: types, or whole values."""
        actual = owes(self.conversation, at)
        for item, wanted in zip_longest(actual, owed):
            assert (type(item) if isinstance(wanted, type) else item) == wanted, actual
        return self

    def newest(self, event_type: type[Event]) -> Event:
        """Return the newest event of a type."""
        return next(event for event in reversed(self.log) if isinstance(event, event_type))

    def result_of(self, tool_call_id: str) -> str:
        """Return the text of a call's result."""
        results = [e for e in self.log if isinstance(e, events.ToolResult) and e.tool_call_id == tool_call_id]
        assert len(results) == 1, f"{tool_call_id} has {len(results)} results"
        return text_of(results[0].content)
