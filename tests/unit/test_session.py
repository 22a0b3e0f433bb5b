"""A session: decisions that survive lost races, lost answers and what others append."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from commands.ports import TooManyRaces
from commands.session import Session
from domain.conversation import Conversation
from domain.errors import ConversationNotFound, UnknownEventType
from domain.event_store import StoreError, StreamMoved
from domain.wire import encode, stream_of
from infra.memory_event_store import MemoryEventStore
from tests.support.agents import StandingClock
from tests.support.given import ADA, CONVERSATION, asked, history, message, started, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from domain.event_store import Appended, NewEvent

STREAM = stream_of(CONVERSATION)


class FailingStore(MemoryEventStore):
    """The log in memory, of which appends get no answer, written or not, while `fails` has something to say."""

    def __init__(self) -> None:
        super().__init__()
        self.fails: list[str] = []

    async def append(self, stream: str, events: Sequence[NewEvent], expected: int) -> Appended:
        if not self.fails:
            return await super().append(stream, events, expected)
        match self.fails.pop(0):
            case "after":
                await super().append(stream, events, expected)
            case "moved":
                raise StreamMoved(stream, expected, expected + 1)
        raise StoreError("no answer")


async def opened(store: MemoryEventStore) -> Session:
    """A session of a conversation with one message."""
    log = history(started(), asked())
    if not await store.read(STREAM):
        await store.append(STREAM, [encode(event) for event in log], 0)
    return Session(store, StandingClock(), Conversation.at(CONVERSATION).fold(log), 2, [stored(event) for event in log])


def saying(message_id: str) -> Callable[[Conversation, datetime], None]:
    return lambda conversation, now: conversation.send_message(message(message_id), now=now, actor=ADA)


async def patient(error: StoreError) -> None:
    """Wait for the log."""


async def test_l4_an_append_without_an_answer_is_sent_again_as_it_was_and_written_once() -> None:
    store = FailingStore()
    session = await opened(store)
    store.fails = ["after", "before", "after"]
    await session.append(saying("m2"), outage=patient)
    written = await store.read(STREAM, after=2)
    assert [event.event_id for event in written] == [event.event_id for event in session.newest[2:]]
    assert (session.seq, session.position, len(written)) == (3, 3, 1)


async def test_l13_a_lost_race_after_a_lost_answer_is_decided_anew() -> None:
    store = FailingStore()
    session = await opened(store)
    other = await opened(store)
    store.fails = ["before"]

    async def somebody_else(error: StoreError) -> None:
        await other.append(saying("theirs"))

    await session.append(saying("ours"), outage=somebody_else)
    assert [waiting for waiting in session.conversation.waiting] == ["m1", "theirs", "ours"]
    assert [event.seq for event in session.newest] == [1, 2, 3, 4]


async def test_l4_without_patience_an_unknown_outcome_is_told_and_settled_by_the_log() -> None:
    store = FailingStore()
    session = await opened(store)
    store.fails = ["after"]
    with pytest.raises(StoreError):
        await session.append(saying("m2"))
    assert session.seq == 2
    await session.refresh()
    assert "m2" in session.conversation.waiting


async def test_l13_patience_ends_when_it_says_so() -> None:
    store = FailingStore()
    session = await opened(store)
    store.fails = ["before"] * 10

    async def impatient(error: StoreError) -> None:
        if len(store.fails) < 5:
            raise error

    with pytest.raises(StoreError):
        await session.append(saying("m2"), outage=impatient)
    assert len(store.fails) == 4


async def test_l3_a_session_that_always_loses_gives_up() -> None:
    store = FailingStore()
    session = await opened(store)
    store.fails = ["moved"] * 20
    with pytest.raises(TooManyRaces):
        await session.append(saying("m2"))
    assert (session.seq, len(await store.read(STREAM))) == (2, 2)


async def test_l13_many_sessions_never_lose_or_repeat_a_decision() -> None:
    store = MemoryEventStore()
    sessions = [await opened(store) for _ in range(8)]

    async def talk(one: int) -> None:
        for n in range(10):
            await sessions[one].append(saying(f"{one}/{n}"))
            await asyncio.sleep(0)

    await asyncio.gather(*map(talk, range(8)))
    await sessions[0].refresh()
    assert sorted(sessions[0].conversation.waiting) == sorted(
        ["m1", *(f"{i}/{n}" for i in range(8) for n in range(10))]
    )


async def test_what_is_known_already_is_not_folded_again() -> None:
    store = MemoryEventStore()
    session = await opened(store)
    log = [stored(event) for event in history(started(), asked(), asked("m2"), asked("m3"))]
    session.fold(log[:3])
    session.fold(log[1:])
    session.fold(())
    assert (session.seq, list(session.conversation.waiting), len(session.newest)) == (4, ["m1", "m2", "m3"], 4)


async def test_l9_an_unknown_event_is_refused_with_all_that_came_with_it() -> None:
    session = await opened(MemoryEventStore())
    news = [stored(event) for event in history(started(), asked(), asked("m2"), asked("m3"))][2:]
    with pytest.raises(UnknownEventType):
        session.fold([news[0], replace(news[1], type="from_the_future")])
    assert (session.seq, len(session.newest)) == (2, 2)


async def test_p3_a_deleted_conversation_is_absent_to_who_has_it_in_memory() -> None:
    store = MemoryEventStore()
    session = await opened(store)
    await store.delete(STREAM)
    tombstone = await store.read_all(2, limit=10)
    with pytest.raises(ConversationNotFound):
        session.fold(tombstone)
    with pytest.raises(ConversationNotFound):
        await session.append(saying("m2"), outage=patient)
