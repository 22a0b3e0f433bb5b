"""Workers over a log in memory, with an agenda in memory, a scripted model and a clock that stands still."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from commands.agent.agenda import Claim
from commands.agent.model import Delta, ModelReply, ToolRequest
from commands.agent.runner import Runner
from commands.agent.surroundings import Surroundings
from commands.agent.worker import Worker
from commands.cancel import Cancel, cancel
from commands.context import CommandContext, Receipt
from commands.conversations import Conversations
from commands.create_conversation import CreateConversation, create_conversation
from commands.ports import NOTHING_SAID, Partial
from commands.resolve_tool_call import ResolveToolCall, resolve_tool_call
from commands.send_message import SendMessage, send_message
from domain import events
from domain.conversation import Conversation
from domain.conversation_settings import ConversationSettings
from domain.event_store import STREAM_DELETED
from domain.hooks import NO_HOOKS, Hooks
from domain.owes import AwaitInput, owes
from domain.parts import text_part
from domain.scope import LOCAL, Scope
from domain.tools import Toolset
from domain.usage import Usage
from domain.wire import conversation_of, decode, dumps, stream_of
from infra.memory_event_store import MemoryEventStore
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection

    from commands.agent.live import Kind, LiveAt
    from commands.agent.model import ModelRequest
    from commands.ports import KnownCommand
    from domain.event_envelope import ConversationEvent
    from domain.scope import Actor

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LEASE = timedelta(seconds=8)
ALWAYS = datetime.min.replace(tzinfo=UTC)

Step = "ModelReply | Exception | Callable[[ModelRequest], Awaitable[ModelReply]]"


class StandingClock:
    """The time, which moves when a test says so."""

    def __init__(self) -> None:
        self.time = START

    def now(self) -> datetime:
        return self.time


def says(text: str, *calls: tuple[str, dict[str, Any]]) -> ModelReply:
    """A reply with these calls: name and arguments."""
    requests = tuple(ToolRequest(f"call_{n}", name, dumps(args)) for n, (name, args) in enumerate(calls))
    reason = "tool_calls" if calls else "stop"
    return ModelReply([text_part(text)] if text else [], requests, "scripted", reason, Usage(model="scripted"), 1)


class ScriptedModel:
    """The port `Model`: each request gets the next step of the script, an echo of the newest message after its end."""

    def __init__(self) -> None:
        self.script: list[Any] = []
        self.requests: list[ModelRequest] = []
        self.closed = 0
        self.asked = asyncio.Condition()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelReply, None]:
        self.requests.append(request)
        async with self.asked:
            self.asked.notify_all()
        step = self.script.pop(0) if self.script else says(f"re: {request.messages[-1]['content']}")
        try:
            yield Delta("text", "So ")
            if isinstance(step, Exception):
                raise step
            yield step if isinstance(step, ModelReply) else await step(request)
        finally:
            self.closed += 1

    async def was_asked(self, times: int) -> None:
        """Wait for so many requests."""
        async with asyncio.timeout(PATIENCE_S), self.asked:
            await self.asked.wait_for(lambda: len(self.requests) >= times)


@dataclass
class Row:
    """A row of the agenda: what the projector and the workers know, as in PostgreSQL."""

    seq: int = 0
    at_once: bool = False
    due_at: datetime | None = None
    seen_seq: int = 0
    seen_due: datetime | None = None
    claimed_by: UUID | None = None
    hold_until: datetime | None = None
    strikes: int = 0
    state: Conversation | None = None

    @property
    def asks_at_once(self) -> bool:
        """Whether what is due is more than a deadline that has passed."""
        return self.at_once and self.seq > self.seen_seq

    @property
    def wake_at(self) -> datetime | None:
        due = self.seen_due if self.seq <= self.seen_seq else ALWAYS if self.at_once else self.due_at
        return max(due, self.hold_until or ALWAYS) if due else None


class MemoryAgenda:
    """The port `Agenda`, and a projector for it.

    `trouble` is asked before and after each call (``claim``, ``claim done``, …) and may raise.
    """

    def __init__(self, store: MemoryEventStore, clock: StandingClock) -> None:
        self._store, self._clock = store, clock
        self.rows: dict[UUID, Row] = defaultdict(Row)
        self.trouble: Callable[[str], Awaitable[None]] = _none
        self.calls: list[str] = []
        self.finished: list[tuple[UUID, int, datetime | None]] = []
        self._listeners: set[asyncio.Queue[UUID | None]] = set()
        self.changed = asyncio.Condition()

    async def project(self) -> None:
        """Fold the log into the rows, for ever."""
        async with aclosing(self._store.subscribe(0)) as batches:
            async for batch in batches:
                for stored in batch.events:
                    if (one := conversation_of(stored.stream)) is None:
                        continue
                    if stored.type == STREAM_DELETED:
                        self.rows.pop(one, None)
                        continue
                    if stored.seq <= (row := self.rows[one]).seq:
                        continue
                    row.state = (row.state or Conversation.at(one)).fold([decode(stored)])
                    owed = owes(row.state, ALWAYS)
                    row.seq, row.at_once = stored.seq, any(not isinstance(item, AwaitInput) for item in owed)
                    row.due_at = next((item.until for item in owed if isinstance(item, AwaitInput)), None)
                self.hint(None)
                await self._stir()

    @property
    def listeners(self) -> int:
        """How many workers wait for hints."""
        return len(self._listeners)

    def hint(self, conversation_id: UUID | None) -> None:
        """Wake every worker."""
        for listener in self._listeners:
            listener.put_nowait(conversation_id)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds of the rows."""
        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(holds)

    def expire_leases(self) -> None:
        """Let every claim run out, as if its holder had stood still."""
        for row in self.rows.values():
            if row.claimed_by:
                row.hold_until = self._clock.now() - timedelta(seconds=1)
        self.hint(None)

    async def claim(self, limit: int) -> list[Claim]:
        assert limit > 0, "PostgreSQL refuses a negative limit"
        async with self._call("claim"):
            now = self._clock.now()
            due = [one for one, row in self.rows.items() if row.wake_at and row.wake_at <= now]
            return [self._claimed(one) for one in due[:limit]]

    async def claim_expired(self, limit: int) -> list[Claim]:
        async with self._call("claim_expired"):
            now = self._clock.now()
            due = [one for one, row in self.rows.items() if row.wake_at and row.wake_at <= now and not row.asks_at_once]
            return [self._claimed(one) for one in due[:limit]]

    async def claim_hinted(self, conversation_id: UUID) -> Claim | None:
        async with self._call("claim_hinted"):
            hold_until = self.rows[conversation_id].hold_until
            return self._claimed(conversation_id) if hold_until is None or hold_until < self._clock.now() else None

    async def extend(self, claims: Collection[Claim]) -> set[UUID]:
        async with self._call("extend"):
            held = {one.conversation_id for one in claims if self._holds(one)}
            for one in held:
                self.rows[one].hold_until = self._clock.now() + LEASE
            return held

    async def finish(self, claim: Claim, seq: int, due_at: datetime | None) -> bool:
        async with self._call("finish"):
            row = self.rows[claim.conversation_id]
            if not self._holds(claim) or row.seq > seq:
                return False
            row.seen_seq, row.seen_due, row.claimed_by, row.hold_until, row.strikes = seq, due_at, None, None, 0
            self.finished.append((claim.conversation_id, seq, due_at))
            if due_at is not None:
                self.hint(None)
            return True

    async def release(self, claim: Claim, *, pause_s: float, failed: bool) -> None:
        async with self._call("release"):
            if self._holds(claim):
                row = self.rows[claim.conversation_id]
                row.claimed_by = row.claimed_by if failed else None
                row.hold_until = self._clock.now() + timedelta(seconds=pause_s)
                self.hint(None)

    async def sweep(self) -> None:
        """Nothing is kept of what owes nothing."""

    async def due_in(self) -> float | None:
        async with self._call("due_in"):
            wakes = [row.wake_at for row in self.rows.values() if row.wake_at]
            return max((min(wakes) - self._clock.now()).total_seconds(), 0) if wakes else None

    async def hints(self) -> AsyncGenerator[UUID | None, None]:
        listener: asyncio.Queue[UUID | None] = asyncio.Queue()
        self._listeners.add(listener)
        await self._stir()
        try:
            yield None
            while True:
                yield await listener.get()
        finally:
            self._listeners.discard(listener)

    @asynccontextmanager
    async def _call(self, name: str) -> AsyncIterator[None]:
        self.calls.append(name)
        await self.trouble(name)
        yield
        await self._stir()
        await self.trouble(f"{name} done")

    def _holds(self, claim: Claim) -> bool:
        return claim.conversation_id in self.rows and self.rows[claim.conversation_id].claimed_by == claim.token

    def _claimed(self, conversation_id: UUID) -> Claim:
        row = self.rows[conversation_id]
        claim = Claim(conversation_id, uuid4(), takeover=row.claimed_by is not None)
        row.strikes = row.strikes + 1 if claim.takeover else 0
        row.claimed_by, row.hold_until = claim.token, self._clock.now() + LEASE
        return claim

    async def _stir(self) -> None:
        async with self.changed:
            self.changed.notify_all()


class Live:
    """The port `LiveTurns`: what is shown now."""

    def __init__(self) -> None:
        self.shown: dict[UUID, str] = {}

    def restart(self, at: LiveAt) -> None:
        self.shown[at.conversation_id] = ""

    def publish(self, at: LiveAt, kind: Kind, text: str) -> None:
        self.shown[at.conversation_id] += text

    def clear(self, conversation_id: UUID) -> None:
        self.shown.pop(conversation_id, None)


@dataclass
class Office:
    """All that workers and people need, in memory. What is left out of a test is that which it shall not need."""

    tools: tuple[Callable[..., Any] | object, ...] = ()
    store: MemoryEventStore = field(default_factory=MemoryEventStore)
    clock: StandingClock = field(default_factory=StandingClock)
    model: ScriptedModel = field(default_factory=ScriptedModel)
    live: Live = field(default_factory=Live)
    woken: list[UUID] = field(default_factory=list)
    hooks: Hooks = NO_HOOKS

    def __post_init__(self) -> None:
        self.agenda = MemoryAgenda(self.store, self.clock)
        self.conversations = Conversations(self.store, self.clock, self, self)
        self.toolset = Toolset(self.tools)
        self.surroundings = Surroundings(
            self.conversations, self.model, self.toolset, self.live, self, "scripted", 3600, hooks=self.hooks
        )

    async def find(self, conversation_id: UUID, command_id: UUID, *, up_to_position: int) -> KnownCommand | None:
        """No command is repeated."""
        return None

    async def wake(self, conversation_id: UUID) -> None:
        """Hint to the workers."""
        self.woken.append(conversation_id)
        self.agenda.hint(conversation_id)

    async def partial(self, conversation_id: UUID) -> Partial:
        """Nobody asks what was said."""
        return NOTHING_SAID

    async def resolve(self, tenant: str, actor: Actor) -> Scope:
        """Everybody is who they are, without roles."""
        return Scope(tenant, actor.id)

    async def start(self, *texts: str, **settings: Any) -> UUID:
        """Begin a conversation with these messages."""
        body = CreateConversation(settings=ConversationSettings(**settings))
        made = await create_conversation(self.conversations, self.toolset, body, _context(), hooks=self.hooks)
        for text in texts:
            await self.say(made.conversation_id, text)
        return made.conversation_id

    async def say(self, conversation_id: UUID, text: str, **fields: Any) -> Receipt:
        """Send a message."""
        return await send_message(
            self.conversations, self, conversation_id, SendMessage(content=text, **fields), _context()
        )

    async def cancel(self, conversation_id: UUID) -> Receipt:
        """Stop the turn."""
        return await cancel(self.conversations, self, conversation_id, Cancel(), _context())

    async def decide(self, conversation_id: UUID, tool_call_id: str, **fields: Any) -> Receipt:
        """Resolve a pending call."""
        body = ResolveToolCall(**fields)
        return await resolve_tool_call(
            self.conversations, self.toolset, 3600, conversation_id, tool_call_id, body, _context()
        )

    async def log(self, conversation_id: UUID) -> list[ConversationEvent]:
        """Return the whole log; a store that counts its calls does not notice."""
        return [decode(stored) for stored in await MemoryEventStore.read(self.store, stream_of(conversation_id))]

    async def types(self, conversation_id: UUID) -> list[str]:
        """Return the log's types."""
        return [event.wire_type for event in await self.log(conversation_id)]

    async def until(self, conversation_id: UUID, holds: Callable[[list[ConversationEvent]], bool]) -> None:
        """Follow the log until something holds of it."""
        seen: list[ConversationEvent] = []
        async with asyncio.timeout(PATIENCE_S):
            async with aclosing(self.store.subscribe_stream(stream_of(conversation_id), 0)) as batches:
                async for batch in batches:
                    seen += [decode(stored) for stored in batch.events]
                    if holds(seen):
                        return

    async def turns_end(self, conversation_id: UUID, turns: int = 1) -> None:
        """Wait until so many turns have ended."""
        await self.until(conversation_id, lambda seen: count(seen, events.TurnEnded) >= turns)

    async def rests(self, conversation_id: UUID) -> None:
        """Wait until the agenda has folded a log that owes nothing, and nobody holds the conversation."""
        row = self.agenda.rows[conversation_id]

        def rests(seq: int) -> bool:
            return row.seq >= seq and not (row.at_once or row.claimed_by)

        while not rests(newest := (await self.log(conversation_id))[-1].seq):
            await self.agenda.until(partial(rests, newest))

    async def runner(self, conversation_id: UUID, *, takeover: bool = False) -> Runner:
        """Make a runner as a worker does that has claimed the conversation."""
        session = await self.conversations.load(conversation_id)
        return Runner(session, self.surroundings, takeover=takeover)

    def worker(self, *, concurrency: int = 8) -> Worker:
        """Make a worker."""
        return Worker(self.agenda, self.surroundings, concurrency=concurrency)

    @asynccontextmanager
    async def working(self, *workers: Worker) -> AsyncIterator[None]:
        """Run a projector and workers (one, if none is given); the first is in the process that people talk to."""
        workers = workers or (self.worker(),)
        self.conversations.nearby = workers[0].hint
        tasks = [asyncio.create_task(one.run()) for one in workers]
        projector = asyncio.create_task(self.agenda.project())
        try:
            await self.agenda.until(lambda: self.agenda.listeners == len(tasks))
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            projector.cancel()
            await asyncio.wait([projector])


async def _none(call: str) -> None:
    """No trouble."""


def count(log: Collection[ConversationEvent], event_type: type[ConversationEvent]) -> int:
    """Count the events of a type."""
    return sum(isinstance(event, event_type) for event in log)


def assert_paid(log: list[ConversationEvent]) -> None:
    """Everything was answered exactly once: messages by turns, turns by their end, calls by results."""
    answered = [one for event in log if isinstance(event, events.TurnStarted) for one in event.answers]
    steered = {e.message_id for e in log if isinstance(e, events.UserMsg) and e.when_busy == "steer"}
    said = [event.message_id for event in log if isinstance(event, events.UserMsg)]
    assert sorted(set(answered)) == sorted(answered), "a message was answered twice"
    assert set(said) - set(answered) <= steered, "a message was never answered"
    open_turn: tuple[int, int] | None = None
    steps: set[tuple[int, int]] = set()
    for event in log:
        match event:
            case events.TurnStarted():
                assert open_turn is None
                open_turn = event.turn, 1
            case events.TurnResumed():
                assert open_turn == (event.turn, event.attempt - 1)
                open_turn = event.turn, event.attempt
            case events.AssistantMsg():
                assert open_turn == (event.turn, event.attempt)
                assert (event.turn, event.step) not in steps, "a reply was recorded twice"
                steps.add((event.turn, event.step))
            case events.TurnEnded():
                assert open_turn is not None
                assert open_turn[0] == event.turn
                open_turn = None
    assert open_turn is None, "a turn has no end"
    calls = sorted(event.tool_call_id for event in log if isinstance(event, events.ToolCall))
    assert calls == sorted(event.tool_call_id for event in log if isinstance(event, events.ToolResult))


def _context() -> CommandContext:
    return CommandContext(LOCAL, uuid4(), "hash", keyed=False)
