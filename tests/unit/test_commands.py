"""Commands over a log in memory: what they read, how they race, and how a repeat is answered."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID, uuid4

import pytest

from commands.cancel import Cancel, cancel
from commands.context import CommandContext
from commands.conversations import PAGE, Conversations
from commands.create_conversation import CreateConversation, create_conversation
from commands.end_conversation import EndConversation, end_conversation
from commands.ports import KnownCommand, NotCaughtUp, Partial
from commands.send_message import SendMessage, send_message
from domain.errors import ConversationEnded, ConversationExists, ConversationNotFound, IdempotencyMismatch
from domain.events import TurnEnded, UserMsg
from domain.scope import Scope
from domain.tools import Toolset
from domain.wire import decode, encode, stream_of
from infra.memory_event_store import MemoryEventStore
from tests.support.given import CONVERSATION, asked, called, claimed, closed, history, said, started

if TYPE_CHECKING:
    from collections.abc import Sequence

    from domain.event_store import Appended, NewEvent, StoredEvent

ADA = Scope("acme", "ada")
NO_TOOLS = Toolset()


class Surroundings:
    """A clock, a read model of commands, and a worker to wake: all that commands need besides the log."""

    def __init__(self) -> None:
        self.known: dict[UUID, KnownCommand] = {}
        self.reached = 0
        self.woken: list[UUID] = []

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def find(self, conversation_id: UUID, command_id: UUID, *, up_to_position: int) -> KnownCommand | None:
        if command_id not in self.known and self.reached < up_to_position:
            raise NotCaughtUp("not yet")
        return self.known.get(command_id)

    async def wake(self, conversation_id: UUID) -> None:
        self.woken.append(conversation_id)

    async def partial(self, conversation_id: UUID) -> Partial:
        return Partial(1, 1, "half a reply")


class CountingStore(MemoryEventStore):
    """The log in memory, which counts the events that were read."""

    events_read = 0

    async def read(self, stream: str, **window: Any) -> list[StoredEvent]:
        events = await super().read(stream, **window)
        self.events_read += len(events)
        return events


class RacingStore(MemoryEventStore):
    """The log in memory, in which somebody else says something just before each of the first appends."""

    def __init__(self, races: int) -> None:
        super().__init__()
        self.races = races

    async def append(self, stream: str, events: Sequence[NewEvent], expected: int) -> Appended:
        if expected and self.races:
            self.races -= 1
            other = decode((await self.read(stream, limit=1))[0])
            said = UserMsg(
                originator_id=other.originator_id,
                originator_version=expected + 1,
                timestamp=other.timestamp,
                actor=other.actor,
                message_id=f"other {self.races}",
                content=[],
                respond=False,
            )
            await super().append(stream, [encode(said)], expected)
        return await super().append(stream, events, expected)


def by(scope: Scope = ADA, *, command_id: UUID | None = None, body: str = "a") -> CommandContext:
    """Make a command's context; one with an id is a repeat's."""
    return CommandContext(scope, command_id or uuid4(), body, keyed=command_id is not None)


def over(store: MemoryEventStore) -> tuple[Conversations, Surroundings]:
    """Make a repository over a log."""
    around = Surroundings()
    return Conversations(store, around, around, around), around


async def log_of_turns(store: MemoryEventStore, turns: int) -> UUID:
    """Append a conversation of so many whole turns."""
    facts = [started()]
    for turn in range(turns):
        facts += [asked(f"m{turn}"), claimed(), said(), closed()]
    await store.append(stream_of(CONVERSATION), [encode(event) for event in history(*facts)], 0)
    return CONVERSATION


async def test_r3_loading_a_long_conversation_reads_what_a_short_one_reads() -> None:
    read = []
    for turns in (100, 2_000):
        store = CountingStore()
        conversation_id = await log_of_turns(store, turns)
        conversations, _ = over(store)
        session = await conversations.load(conversation_id)
        assert session.seq == 1 + 4 * turns
        assert session.conversation.owner == "ada"
        read.append(store.events_read)
    assert read[0] == read[1] <= PAGE + 2


async def test_l13_a_command_that_loses_races_decides_again_on_what_is_new() -> None:
    store = RacingStore(races=5)
    conversations, around = over(store)
    created = await create_conversation(conversations, NO_TOOLS, CreateConversation(), by())
    receipt = await send_message(conversations, around, created.conversation_id, SendMessage(content="hi"), by())
    assert receipt.seq == 7
    log = await store.read(stream_of(created.conversation_id))
    assert [decode(event).wire_type for event in log] == ["conversation_started", *["user_msg"] * 6]


async def test_l13_concurrent_messages_are_all_recorded_once() -> None:
    store = MemoryEventStore()
    conversations, around = over(store)
    created = await create_conversation(conversations, NO_TOOLS, CreateConversation(), by())
    said = [
        send_message(conversations, around, created.conversation_id, SendMessage(content=str(i)), by())
        for i in range(15)
    ]
    receipts = await asyncio.gather(*said)
    assert sorted(receipt.seq for receipt in receipts) == list(range(2, 17))
    assert around.woken == [created.conversation_id] * 15


async def test_a_repeated_command_is_answered_alike_and_does_nothing() -> None:
    store = MemoryEventStore()
    conversations, around = over(store)
    create = CreateConversation(message=SendMessage(content="hi"))
    context = by(command_id=uuid4())
    first = await create_conversation(conversations, NO_TOOLS, create, context)
    assert await create_conversation(conversations, NO_TOOLS, create, context) == first
    saying = by(command_id=uuid4())
    receipt = await send_message(conversations, around, first.conversation_id, SendMessage(content="more"), saying)
    again = await send_message(conversations, around, first.conversation_id, SendMessage(content="more"), saying)
    assert again == receipt
    assert len(await store.read(stream_of(first.conversation_id))) == 3
    with pytest.raises(IdempotencyMismatch):
        await send_message(
            conversations, around, first.conversation_id, SendMessage(content="x"), replace(saying, body_hash="b")
        )


async def test_an_older_repeat_is_found_in_the_read_model_once_that_has_come_so_far() -> None:
    store = MemoryEventStore()
    conversation_id = await log_of_turns(store, 50)
    conversations, around = over(store)
    context = by(command_id=uuid4())
    with pytest.raises(NotCaughtUp):
        await send_message(conversations, around, conversation_id, SendMessage(content="hi"), context)
    around.known[context.command_id] = KnownCommand(conversation_id, 2, 2, "a", {"message_id": "m0", "queued": 0})
    receipt = await send_message(conversations, around, conversation_id, SendMessage(content="hi"), context)
    assert (receipt.seq, receipt.answer) == (2, {"message_id": "m0", "queued": 0})
    around.reached = 10_000
    other = await send_message(
        conversations, around, conversation_id, SendMessage(content="hi"), by(command_id=uuid4())
    )
    assert other.seq == 202


async def test_a_taken_id_is_refused() -> None:
    conversations, _ = over(MemoryEventStore())
    create = CreateConversation(id=uuid4())
    await create_conversation(conversations, NO_TOOLS, create, by())
    with pytest.raises(ConversationExists):
        await create_conversation(conversations, NO_TOOLS, create, by())


@pytest.mark.parametrize(
    "scope", [Scope("acme", "ben"), Scope("evil", "ada"), Scope("evil", "root", frozenset({"admin"}))]
)
async def test_p1_another_owners_conversation_is_as_absent(scope: Scope) -> None:
    store = MemoryEventStore()
    conversations, around = over(store)
    created = await create_conversation(conversations, NO_TOOLS, CreateConversation(), by())
    with pytest.raises(ConversationNotFound) as foreign:
        await send_message(conversations, around, created.conversation_id, SendMessage(content="hi"), by(scope))
    with pytest.raises(ConversationNotFound) as absent:
        await send_message(conversations, around, uuid4(), SendMessage(content="hi"), by(scope))
    assert str(foreign.value) == str(absent.value)
    assert len(await store.read(stream_of(created.conversation_id))) == 1


async def test_cancel_and_end_need_no_worker() -> None:
    store = MemoryEventStore()
    conversations, around = over(store)
    created = await create_conversation(
        conversations, NO_TOOLS, CreateConversation(message=SendMessage(content="hi")), by()
    )
    stopped = await cancel(conversations, around, created.conversation_id, Cancel(), by())
    assert stopped.answer == {"cancelled": True}
    nothing = await cancel(conversations, around, created.conversation_id, Cancel(), by())
    assert (nothing.answer, nothing.seq) == ({"cancelled": False}, stopped.seq)
    await end_conversation(conversations, around, created.conversation_id, EndConversation(), by())
    with pytest.raises(ConversationEnded):
        await send_message(conversations, around, created.conversation_id, SendMessage(content="hi"), by())


async def test_a_deleted_conversation_is_as_absent() -> None:
    store = MemoryEventStore()
    conversations, around = over(store)
    created = await create_conversation(conversations, NO_TOOLS, CreateConversation(), by())
    await store.delete(stream_of(created.conversation_id))
    with pytest.raises(ConversationNotFound):
        await send_message(conversations, around, created.conversation_id, SendMessage(content="hi"), by())
    with pytest.raises(ConversationExists):
        await create_conversation(conversations, NO_TOOLS, CreateConversation(id=created.conversation_id), by())


async def test_b5_what_a_reply_said_is_kept_only_if_it_is_the_one_that_the_turn_lacks() -> None:
    for tail, kept in (((), "half a reply"), ((said(""), called()), None)):
        store = MemoryEventStore()
        log = history(started(), asked(), claimed(), *tail)
        await store.append(stream_of(CONVERSATION), [encode(event) for event in log], 0)
        conversations, around = over(store)
        await cancel(conversations, around, CONVERSATION, Cancel(), by())
        ended = decode((await store.read(stream_of(CONVERSATION), limit=1))[0])
        assert isinstance(ended, TurnEnded)
        assert ended.partial_text == kept


class SlowStore(MemoryEventStore):
    """The log in memory, in which everybody reads before anybody appends."""

    async def append(self, stream: str, events: Sequence[NewEvent], expected: int) -> Appended:
        for _ in range(20):
            await asyncio.sleep(0)
        return await super().append(stream, events, expected)


@pytest.mark.parametrize("when_busy", [None, "interrupt", "steer"])
async def test_a_command_sent_twice_at_once_is_one(when_busy: Literal["interrupt", "steer"] | None) -> None:
    store = SlowStore()
    conversations, around = over(store)
    created = await create_conversation(
        conversations, NO_TOOLS, CreateConversation(message=SendMessage(content="first")), by()
    )
    context, body = by(command_id=uuid4()), SendMessage(content="hi", when_busy=when_busy)
    sent = [send_message(conversations, around, created.conversation_id, body, context) for _ in range(6)]
    receipts = await asyncio.gather(*sent)
    assert len({(receipt.seq, str(receipt.answer)) for receipt in receipts}) == 1
    log = [decode(event) for event in await store.read(stream_of(created.conversation_id))]
    assert sum(isinstance(event, UserMsg) for event in log) == 2
    ending = by(command_id=uuid4())
    ended = [
        end_conversation(conversations, around, created.conversation_id, EndConversation(), ending) for _ in range(3)
    ]
    assert len({receipt.seq for receipt in await asyncio.gather(*ended)}) == 1
