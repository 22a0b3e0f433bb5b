"""Random conversations, by the rules: what people, workers and models may do, in any order, with ugly text."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from domain.conversation import Conversation
from domain.decisions import Decision, Inquiry, Message, Outcome, ProposedCall, Reply, Rescheduling
from domain.errors import DomainError
from domain.event_store import StoredEvent
from domain.owes import AwaitInput, CallModel, CloseTurn, Expire, RunTools, StartTurn, owes
from domain.parts import Part, text_part
from domain.scope import Actor
from domain.summaries import event as summary_event
from domain.summary_events import SummaryRecorded, SummaryRequested, SummaryRevoked
from domain.usage import Usage
from domain.wire import CommandMark, conversation_of, encode, stream_of, summary_stream_of
from tests.support.given import NOW

if TYPE_CHECKING:
    import random

    from domain.event_envelope import ConversationEvent

UGLY = (
    "Hello",
    "",
    "nul \x00 here",
    "lone \ud800 surrogate",
    "🦜 e\u0301 \u202e",
    "'; drop table x; --",
    "\\u0000 %s {}",
)
VALUES: tuple[Any, ...] = (None, 1, 10**30, float("nan"), 0.1, True, "\x00", ["a", {"b": []}], {"k\x00": "\udfff"})
PEOPLE = tuple(Actor(kind="user", id=name) for name in ("ada", "ben"))
WAITS = (0, 1, 1, 1, 70 * 60)


def random_log(chance: random.Random, *, steps: int = 40) -> list[StoredEvent]:
    """Make the log of one conversation by about so many commands; positions are its seqs."""
    return RandomConversation(chance).live(steps)


def with_summaries(log: list[StoredEvent], chance: random.Random, *, count: int = 5) -> list[StoredEvent]:
    """Put events of the sibling stream among those of a conversation, after its first."""
    one = conversation_of(log[0].stream)
    assert one is not None
    both = list(log)
    at = sorted(chance.randrange(1, len(both) + 1) for _ in range(count))
    live: list[int] = []
    for seq, index in enumerate(at, 1):
        before = both[: index + seq - 1]
        newest = max(event.seq for event in before if event.stream == log[0].stream)
        ended = max((event.seq for event in before if event.type == "turn_ended"), default=0)
        kind = chance.choice((SummaryRequested, SummaryRecorded, SummaryRecorded, SummaryRevoked))
        fields: dict[str, Any] = {}
        if kind is SummaryRevoked:
            fields = {"to_seq": chance.choice(live or [1])}
            live = [to_seq for to_seq in live if to_seq < fields["to_seq"]]
        elif kind is SummaryRecorded and ended:
            fields = {"from_seq": 1, "to_seq": ended, "content": chance.choice(UGLY), "version": 1, "strategy": "llm"}
            fields |= {"tokens_before": 9, "based_on": live[-1] if live else None, "context_seq": newest}
            fields |= {"usage": Usage(model="m", input_tokens=seq)}
            live.append(ended)
        else:
            kind = SummaryRequested
        new = encode(summary_event(kind, one, now=NOW, actor=PEOPLE[0], **fields))
        stored = StoredEvent(summary_stream_of(one), seq, seq, new.event_id, new.type, new.data, new.metadata)
        both.insert(index + seq - 1, stored)
    return both


class RandomConversation:
    """A conversation that all kinds of things happen to."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._conversation = Conversation.at(UUID(int=chance.getrandbits(128), version=4))
        self._now = NOW + timedelta(seconds=chance.randrange(10_000))
        self._log: list[StoredEvent] = []
        self._ids: dict[UUID | None, UUID] = {}
        self._made = 0

    def live(self, steps: int) -> list[StoredEvent]:
        """Let so many things happen; return the log."""
        self._run(self._start)
        acts = (self._work, self._work, self._work, self._work, self._send, self._decide, self._change, self._disturb)
        for _ in range(steps):
            self._now += timedelta(seconds=self._chance.choice(WAITS))
            self._run(self._chance.choice(acts))
        if self._chance.random() < 0.1:
            self._run(lambda c: c.end(reason=self._text(), now=self._now, actor=self._person()))
        return self._log

    def _run(self, act: Any) -> None:
        trial = self._conversation.copied()
        try:
            act(trial)
        except DomainError:
            return
        decided = cast("list[ConversationEvent]", list(trial.collect_events()))
        mark = None
        if self._chance.random() < 0.5:
            mark = CommandMark(self._uuid(), "hash", {"said": 1})
        for event in decided:
            self._ids[event.event_id] = self._uuid()
            named = ("event_id", "causation_id", "correlation_id")
            event = event.model_copy(update={name: self._ids.get(getattr(event, name)) for name in named})
            new = encode(event, mark)
            stream = stream_of(event.originator_id)
            self._log.append(StoredEvent(stream, event.seq, event.seq, new.event_id, new.type, new.data, new.metadata))
        self._conversation = trial

    def _start(self, conversation: Conversation) -> None:
        settings = self._chance.choice(({}, {"max_steps": 2}, {"max_attempts": 1, "system_prompt": "Be kind."}))
        conversation.start(
            tenant="acme",
            owner="ada",
            title=self._chance.choice((None, self._text())),
            settings=settings,
            metadata={"any": self._value()},
            now=self._now,
            actor=PEOPLE[0],
        )

    def _send(self, conversation: Conversation) -> None:
        parts = [self._part() for _ in range(self._chance.randrange(3))]
        conversation.send_message(
            Message(
                str(self._uuid()),
                parts,
                role=self._chance.choice(("user", "system")),
                metadata={"m": self._value()},
                respond=self._chance.random() < 0.8,
                when_busy=self._chance.choice(("enqueue", "steer", "interrupt", "reject")),
            ),
            now=self._now,
            actor=self._person(),
            partial_text=self._chance.choice((None, self._text())),
        )

    def _work(self, conversation: Conversation) -> None:
        owed = owes(conversation, self._now)
        turn = conversation.turn
        match self._chance.choice(owed) if owed else None:
            case StartTurn():
                conversation.start_turn(now=self._now)
            case CallModel() if turn and self._chance.random() < 0.1:
                conversation.fail_turn(turn.number, turn.attempt, "rate_limited", now=self._now, usage=[self._usage()])
            case CallModel() if turn:
                conversation.record_reply(turn.number, turn.attempt, self._reply(conversation), now=self._now)
            case RunTools(calls) if turn and self._chance.random() < 0.3:
                call = self._chance.choice(calls)
                conversation.record_step(
                    turn.number, turn.attempt, call, "draft", self._chance.choice((1, 2)), self._value(), now=self._now
                )
            case RunTools(calls) if turn:
                outcome = Outcome(self._chance.choice(calls), self._chance.choice(("ok", "error")), [self._part()])
                conversation.record_result(turn.number, turn.attempt, outcome, now=self._now)
            case Expire(calls):
                conversation.expire(calls, now=self._now)
            case CloseTurn(reason) if turn:
                conversation.fail_turn(turn.number, turn.attempt, reason, now=self._now)
            case AwaitInput():
                self._decide(conversation)

    def _decide(self, conversation: Conversation) -> None:
        if not conversation.calls:
            return
        call = self._chance.choice(list(conversation.calls))
        if self._chance.random() < 0.2:
            until = self._chance.choice((None, self._now + timedelta(minutes=5)))
            conversation.reschedule(Rescheduling(call, until), now=self._now, actor=self._person())
            return
        decision = Decision(
            call,
            self._chance.choice(("approve", "edit", "reject", "answer")),
            args=self._value(),
            answer=self._value(),
            reason=self._text(),
            inquiry=self._inquiry("client"),
        )
        conversation.resolve(decision, now=self._now, actor=self._person())

    def _change(self, conversation: Conversation) -> None:
        settings = self._chance.choice(({}, {"max_steps": 3}))
        title = self._chance.choice((None, "", self._text()))
        conversation.change(
            title=title, settings=settings, metadata={"n": self._value()}, now=self._now, actor=self._person()
        )

    def _disturb(self, conversation: Conversation) -> None:
        turn = conversation.turn
        if turn and self._chance.random() < 0.7:
            conversation.resume_turn(turn.number, turn.attempt, now=self._now)
        elif self._chance.random() < 0.3:
            conversation.cancel(reason=self._text(), now=self._now, actor=self._person(), partial_text=self._text())

    def _reply(self, conversation: Conversation) -> Reply:
        assert conversation.turn is not None
        return Reply(
            conversation.turn.step + 1,
            [self._part() for _ in range(self._chance.randrange(3))],
            "demo",
            "stop",
            context_seq=self._chance.randrange(conversation.turn.seq, conversation.version + 1),
            calls=tuple(self._call() for _ in range(self._chance.choice((0, 0, 1, 1, 3)))),
            usage=self._chance.choice((None, self._usage())),
            latency_ms=5,
        )

    def _call(self) -> ProposedCall:
        more: dict[str, Any] = self._chance.choice(
            (
                {"executor": "server"},
                {"executor": "server", "error": "no such tool"},
                {"executor": "server", "gated": True, "inquiry": self._inquiry("approval")},
                {"executor": "human", "inquiry": self._inquiry("elicitation")},
                {"executor": "client", "inquiry": self._inquiry("client")},
                {"executor": "client", "gated": True, "inquiry": self._inquiry("approval")},
            )
        )
        return ProposedCall(
            tool_call_id=f"call_{self._uuid().hex}", provider_id="call_0", name="tool", args=self._value(), **more
        )

    def _inquiry(self, kind: Any) -> Inquiry:
        return Inquiry(
            kind, self._text(), self._chance.choice((None, {"type": "string"})), self._chance.choice((None, 3600))
        )

    def _usage(self) -> Usage:
        return Usage(
            model=self._chance.choice((None, "demo")),
            input_tokens=self._chance.randrange(1000),
            output_tokens=self._chance.randrange(1000),
            cost_usd=self._chance.choice((None, self._chance.random())),
        )

    def _part(self) -> Part:
        kind = self._chance.choice(("text", "text", "thinking", "image_url", "hosted"))
        match kind:
            case "image_url":
                return Part(type=kind, image_url={"url": "data:x"})
            case "hosted":
                return Part(type=kind, data=self._value(), provider_data={"opaque": 1})
            case _:
                return Part(type=kind, text=self._text()) if kind == "thinking" else text_part(self._text())

    def _text(self) -> str:
        return self._chance.choice(UGLY)

    def _value(self) -> Any:
        return self._chance.choice(VALUES)

    def _person(self) -> Actor:
        return self._chance.choice(PEOPLE)

    def _uuid(self) -> UUID:
        self._made += 1  # whatever chance says, none comes twice
        return UUID(int=self._chance.getrandbits(104) << 24 | self._made, version=4)
