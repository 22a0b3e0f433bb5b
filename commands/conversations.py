"""Loading a conversation from its log alone, and running one command on it: load, decide, append."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic_core import from_json

from commands.context import CommandContext, Receipt
from commands.ports import KnownCommand
from commands.session import Session
from domain.conversation import Conversation
from domain.errors import ConversationNotFound, IdempotencyMismatch
from domain.events import ConversationChanged, ConversationStarted, TurnStarted
from domain.owes import AwaitInput, owes
from domain.scope import Scope
from domain.wire import CommandMark, decode, stream_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from uuid import UUID

    from commands.ports import Clock, Receipts, Waker
    from domain.event_store import EventStore, StoredEvent

    Decide = Callable[[Conversation, datetime], dict[str, Any]]

Key = TypeVar("Key")
Value = TypeVar("Value")

PAGE = 64
_REMEMBERED = 10_000
_SETTINGS_REMEMBERED = 256
"""They may be large."""


class Belongs(NamedTuple):
    """Whose a conversation is: what its first event says, for ever."""

    tenant: str
    owner: str


class _Repeated(Exception):
    def __init__(self, known: KnownCommand) -> None:
        self.known = known


class Conversations:
    """The write side's repository; reads nothing but the log, and costs the same however long a conversation is."""

    def __init__(self, store: EventStore, clock: Clock, receipts: Receipts, waker: Waker) -> None:
        self.store, self.clock = store, clock
        self._receipts, self._waker = receipts, waker
        self.nearby: Callable[[Session], bool] | None = None
        """A worker of this process, to whom a hint is given without a way through the database, if it takes it."""
        self._settings: OrderedDict[tuple[UUID, int], ConversationStarted | ConversationChanged] = OrderedDict()
        self._owners: OrderedDict[UUID, Belongs] = OrderedDict()

    async def authorise(
        self, conversation_id: UUID, scope: Scope, allows: Callable[[Scope, str, str], bool] = Scope.may_read
    ) -> Belongs:
        """Say whose the conversation is, by its first event; raises `ConversationNotFound` if the scope may not."""
        belongs = await self._belongs(conversation_id)
        if not allows(scope, belongs.tenant, belongs.owner):
            raise ConversationNotFound("no such conversation")
        return belongs

    async def load(self, conversation_id: UUID) -> Session:
        """Read backwards to the newest `turn_started` and fold from there; raises `ConversationNotFound`."""
        conversation, newest = await self._load(conversation_id)
        return Session(self.store, self.clock, conversation, newest[-1].position, newest)

    async def load_until(self, conversation_id: UUID, seq: int) -> tuple[Conversation, list[StoredEvent]]:
        """Return the conversation as it was after its event `seq`, and the newest events by then, as `load` reads them.

        Raises `ConversationNotFound`.
        """
        return await self._load(conversation_id, seq + 1)

    async def execute(
        self,
        conversation_id: UUID,
        context: CommandContext,
        decide: Decide,
        allows: Callable[[Scope, str, str], bool] = Scope.may_command,
    ) -> Receipt:
        """Run a command: its repeat is answered as before, else `decide` is appended and a worker woken.

        `decide` triggers on the conversation and returns the answer's own fields. Raises its errors, and
        `ConversationNotFound`, `IdempotencyMismatch`, `NotCaughtUp`, `TooManyRaces`.
        """
        await self.authorise(conversation_id, context.scope, allows)
        conversation, newest = await self._load(conversation_id)
        if known := await self._known(conversation_id, newest, context):
            return answered_before(known, context)
        session = Session(self.store, self.clock, conversation, newest[-1].position, newest)

        def look_for_repeat(news: list[StoredEvent]) -> None:
            if context.keyed and (known := known_in(news, context.command_id)):
                raise _Repeated(known)

        try:
            answer = await session.append(decide, mark=lambda said: mark_of(context, said), moved=look_for_repeat)
        except _Repeated as repeated:  # the same command, sent twice at once: the other was first
            return answered_before(repeated.known, context)
        receipt = Receipt(conversation_id, session.seq, session.position, answer)
        await self.wake(session)
        return receipt

    async def wake(self, session: Session) -> None:
        """Hint to the workers that a conversation owes something now; a worker in this process gets the session."""
        owed = owes(session.conversation, self.clock.now())
        if all(isinstance(item, AwaitInput) for item in owed) or (self.nearby is not None and self.nearby(session)):
            return
        await self._waker.wake(session.conversation_id)

    async def _known(
        self, conversation_id: UUID, newest: list[StoredEvent], context: CommandContext
    ) -> KnownCommand | None:
        if not context.keyed:
            return None
        if known := known_in(newest, context.command_id):
            return known
        if newest[0].seq == 1:
            return None
        return await self._receipts.find(conversation_id, context.command_id, up_to_position=newest[0].position)

    async def _load(self, conversation_id: UUID, before: int | None = None) -> tuple[Conversation, list[StoredEvent]]:
        """Return the conversation and its newest events: those since its newest turn began, and what came along."""
        stream = stream_of(conversation_id)
        events = await self.store.read(stream, before=before, limit=PAGE)
        while (turn := _newest_turn(events)) is None and events and events[0].seq > 1:
            events = await self.store.read(stream, before=events[0].seq, limit=max(PAGE, 2 * len(events))) + events
        if not events:
            raise ConversationNotFound("no such conversation")
        tail = events[turn or 0 :]
        conversation = Conversation.at(conversation_id, tail[0].seq - 1)
        if turn is not None:
            await self._stand_before_turn(conversation, tail[0])
        return conversation.fold(decode(event) for event in tail), events

    async def _stand_before_turn(self, conversation: Conversation, started: StoredEvent) -> None:
        turn = decode(started)
        assert isinstance(turn, TurnStarted)
        conversation.tenant, conversation.owner = await self._belongs(conversation.id)
        if (event := await self._settings_at(conversation.id, turn.settings_seq)) is not None:
            conversation.settings, conversation.metadata = event.settings, event.metadata
            conversation.settings_seq = event.seq

    async def _settings_at(self, conversation_id: UUID, seq: int) -> ConversationStarted | ConversationChanged | None:
        """Return the event of that seq, which puts settings and metadata in force; the newest ones are remembered."""
        place = conversation_id, seq
        if place not in self._settings:
            for stored in await self.store.read(stream_of(conversation_id), after=seq - 1, before=seq + 1):
                if isinstance(event := decode(stored), (ConversationStarted, ConversationChanged)):
                    _remember(self._settings, place, event, _SETTINGS_REMEMBERED)
        return self._settings.get(place)

    async def _belongs(self, conversation_id: UUID) -> Belongs:
        if conversation_id not in self._owners:
            first = await self.store.read(stream_of(conversation_id), before=2)
            started = decode(first[0]) if first else None
            if not isinstance(started, ConversationStarted):
                raise ConversationNotFound("no such conversation")
            _remember(self._owners, conversation_id, Belongs(started.tenant, started.owner), _REMEMBERED)
        self._owners.move_to_end(conversation_id)
        return self._owners[conversation_id]


def _remember(known: OrderedDict[Key, Value], key: Key, value: Value, most: int) -> None:
    known[key] = value
    if len(known) > most:
        known.popitem(last=False)


def mark_of(context: CommandContext, answer: dict[str, Any]) -> CommandMark:
    """Make the mark that a command leaves on its events."""
    return CommandMark(context.command_id, context.body_hash, answer)


def known_in(events: list[StoredEvent], command_id: UUID) -> KnownCommand | None:
    """Return the command of this id if some of these events are its."""
    wanted = str(command_id)
    for event in reversed(events):
        if wanted in event.metadata and (metadata := from_json(event.metadata)).get("command_id") == wanted:
            conversation_id = decode(event).originator_id
            return KnownCommand(
                conversation_id, event.seq, event.position, metadata["body_hash"], metadata.get("receipt", {})
            )
    return None


def answered_before(known: KnownCommand, context: CommandContext) -> Receipt:
    """Answer a repeat as the first time; raises `IdempotencyMismatch` if it says something else."""
    if known.body_hash != context.body_hash:
        raise IdempotencyMismatch("this idempotency key was used with another body; use a new key")
    return Receipt(known.conversation_id, known.seq, known.position, dict(known.answer))


def _newest_turn(events: list[StoredEvent]) -> int | None:
    return next((i for i in range(len(events) - 1, -1, -1) if events[i].type == TurnStarted.wire_type), None)
