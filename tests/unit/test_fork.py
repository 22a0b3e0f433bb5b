"""A fork: what it has in common with its source at any point, and that it is whole or nobody's work."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4, uuid5

import pytest

from commands.fork import Fork, fork
from commands.send_message import SendMessage, send_message
from domain.errors import (
    ConversationIncomplete,
    ConversationNotFound,
    CutsTurn,
    IdempotencyMismatch,
    InvalidInput,
    TooLarge,
)
from domain.event_store import StoreError
from domain.scope import Scope
from domain.wire import decode, stream_of
from infra.memory_event_store import MemoryEventStore
from projections.usage import USAGE
from tests.support.forking import folded, owes_nothing, put, seen, whole_log
from tests.support.given import asked, called, claimed, closed, finished, got, history, said, started, stored
from tests.support.projecting import fold_whole
from tests.support.random_log import random_log, with_summaries
from tests.unit.test_commands import by, over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from domain.event_store import Appended, NewEvent, StoredEvent
    from tests.support.given import Fact

AGAIN = SendMessage(content="Again", message_id="again")


class DyingStore(MemoryEventStore):
    """The log in memory, which is out of reach after so many appends until it is `mended`."""

    def __init__(self) -> None:
        super().__init__()
        self.appends_left = 10**9

    async def append(self, stream: str, events: Sequence[NewEvent], expected: int) -> Appended:
        if not self.appends_left:
            raise StoreError("gone")
        self.appends_left -= 1
        return await super().append(stream, events, expected)


async def holding(*facts: Fact) -> tuple[MemoryEventStore, UUID]:
    """Make a store that holds the log of these facts."""
    store, log = MemoryEventStore(), [stored(event) for event in history(*facts)]
    await put(store, log)
    return store, decode(log[0]).originator_id


async def events_of(store: MemoryEventStore, conversation_id: UUID) -> list[Any]:
    """Read a conversation's own events."""
    return [decode(event) for event in await store.read(stream_of(conversation_id))]


def at(log: Sequence[StoredEvent], seq: int) -> list[StoredEvent]:
    """Return the part of a log that a fork after `seq` shares."""
    return [
        event
        for event in log
        if (
            event.seq <= seq
            if event.stream.startswith("conversation-")
            else json.loads(event.data).get("to_seq", seq + 1) <= seq
        )
    ]


@pytest.mark.parametrize("seed", range(8))
async def test_a_fork_after_any_clean_event_is_its_source_at_that_event(seed: int) -> None:
    chance = random.Random(seed)
    store = MemoryEventStore()
    await put(store, with_summaries(random_log(chance, steps=30), chance))
    conversations, _ = over(store)
    [source_id] = {decode(event).originator_id for event in await store.read_all(0, limit=1)}
    log = await whole_log(store, source_id)
    last = max(event.seq for event in log if event.stream.startswith("conversation-"))
    for seq in range(1, last + 1):
        then = folded(at(log, seq))
        if then.turn is not None:
            with pytest.raises(CutsTurn):
                await fork(conversations, source_id, Fork(at_seq=seq), by())
            continue
        receipt = await fork(conversations, source_id, Fork(at_seq=seq), by())
        made = await whole_log(store, receipt.conversation_id)
        ends = [event.seq for event in log if event.type == "conversation_ended" and event.seq <= seq]
        same = at(log, ends[0] - 1 if ends else seq)
        assert seen(made) == seen(same)
        assert fold_whole(USAGE, made) == {}
        assert folded(made).spent_usd == 0
        assert owes_nothing(made) == (not folded(made).waiting)
    assert await whole_log(store, source_id) == log


@pytest.mark.parametrize("seed", range(8))
async def test_a_fork_before_any_message_does_not_know_it_or_what_came_of_it(seed: int) -> None:
    chance = random.Random(100 + seed)
    store = MemoryEventStore()
    await put(store, with_summaries(random_log(chance, steps=30), chance))
    conversations, _ = over(store)
    [source_id] = {decode(event).originator_id for event in await store.read_all(0, limit=1)}
    log = await events_of(store, source_id)
    for message in log:
        if message.wire_type != "user_msg":
            continue
        before = Fork(before_message=message.message_id, message=AGAIN)
        try:
            receipt = await fork(conversations, source_id, before, by())
        except CutsTurn:  # it came while the newest turn ran
            assert folded(await whole_log(store, source_id)).turn is not None
            continue
        made = await events_of(store, receipt.conversation_id)
        assert made[0].forked_from == source_id
        said = [event for event in made if event.wire_type == "user_msg"]
        assert said[-1].message_id == "again" == receipt.answer["message_id"]
        earlier = [event.event_id for event in log if event.wire_type == "user_msg" and event.seq < message.seq]
        assert {event.copied_from for event in said[:-1]} <= set(earlier)
        assert [event.seq for event in made] == list(range(1, len(made) + 1))
        contexts = [event for event in made if event.wire_type == "assistant_msg"]
        assert all(event.context_seq < event.seq for event in contexts)
        seen(await whole_log(store, receipt.conversation_id))


QUEUED: tuple[Fact, ...] = (started(), asked("m1"), claimed(), asked("m2"), asked("m3"), said("one"), closed())


async def test_a_message_that_waited_while_a_turn_ran_is_left_out_and_the_turn_stays() -> None:
    store, source_id = await holding(*QUEUED, claimed(), said("two and three"), closed())
    conversations, _ = over(store)
    for message_id, left in (("m2", ["m1"]), ("m3", ["m1", "m2"])):
        receipt = await fork(conversations, source_id, Fork(before_message=message_id), by())
        made = await events_of(store, receipt.conversation_id)
        assert [event.message_id for event in made if event.wire_type == "user_msg"] == left
        [reply] = [event for event in made if event.wire_type == "assistant_msg"]
        assert (reply.seq, reply.context_seq) == (len(left) + 3, len(left) + 2)
        assert made[-1].wire_type == "fork_completed"


async def test_a_message_that_a_turn_saw_takes_the_whole_turn_along() -> None:
    steered = (started(), asked("m1"), claimed(), said(""), called("c1"), asked("m2", when_busy="steer"), got("c1"))
    store, source_id = await holding(*steered, said("both"), closed())
    conversations, around = over(store)
    receipt = await fork(conversations, source_id, Fork(before_message="m2"), by())
    made = folded(await whole_log(store, receipt.conversation_id))
    assert (list(made.waiting), made.turns) == (["m1"], 0)
    assert around.woken == [receipt.conversation_id]


async def test_while_a_turn_runs_what_came_meanwhile_is_no_place_to_fork() -> None:
    store, source_id = await holding(*QUEUED[:4])
    conversations, _ = over(store)
    with pytest.raises(CutsTurn, match="has not ended"):
        await fork(conversations, source_id, Fork(before_message="m2"), by())
    assert (await fork(conversations, source_id, Fork(before_message="m1"), by())).seq == 2


async def test_the_fork_of_an_ended_conversation_goes_on() -> None:
    store, source_id = await holding(*QUEUED[:3], said("one"), closed(), finished())
    conversations, _ = over(store)
    receipt = await fork(conversations, source_id, Fork(at_seq=6, message=AGAIN), by())
    made = folded(await whole_log(store, receipt.conversation_id))
    assert (made.ended, list(made.waiting), receipt.answer["queued"]) == (False, ["again"], 0)


async def test_a_fork_may_have_another_title_and_keeps_the_owner() -> None:
    store, source_id = await holding(started(title="Old", settings={"max_steps": 3}))
    conversations, _ = over(store)
    admin = Scope("acme", "root", frozenset({"admin"}))
    receipt = await fork(conversations, source_id, Fork(at_seq=1, title="New"), by(admin))
    own, whole, changed = await events_of(store, receipt.conversation_id)
    assert (own.owner, own.title, own.forked_from, own.forked_seq) == ("ada", "Old", source_id, 1)
    assert (whole.wire_type, changed.title, changed.settings) == ("fork_completed", "New", {"max_steps": 3})
    with pytest.raises(ConversationNotFound):
        await fork(conversations, source_id, Fork(at_seq=1), by(Scope("acme", "ben")))


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (Fork(), InvalidInput),
        (Fork(at_seq=1, before_message="m1"), InvalidInput),
        (Fork(at_seq=99), InvalidInput),
        (Fork(before_message="m99"), InvalidInput),
        (Fork(at_seq=1, message=SendMessage(content="x" * 600_000)), TooLarge),
        (Fork(at_seq=2, message=SendMessage(content="x", message_id="m1")), InvalidInput),
    ],
)
async def test_what_is_refused_leaves_nothing(body: Fork, error: type[Exception]) -> None:
    store, source_id = await holding(*QUEUED)
    conversations, _ = over(store)
    head = await store.head()
    with pytest.raises(error):
        await fork(conversations, source_id, body, by())
    assert await store.head() == head


async def test_a_fork_of_a_fork_names_its_source_and_begins_as_that_does() -> None:
    store, source_id = await holding(*QUEUED)
    conversations, _ = over(store)
    first = await fork(conversations, source_id, Fork(at_seq=7), by())
    second = await fork(conversations, first.conversation_id, Fork(at_seq=first.seq), by())
    one, two = [await store.read(stream_of(receipt.conversation_id)) for receipt in (first, second)]
    assert [decode(event).copied_from for event in two[1:-1]] == [event.event_id for event in one[1:]]
    assert list(folded(two).waiting) == ["m2", "m3"]


LONG: tuple[Fact, ...] = (
    started(),
    *(fact for n in range(260) for fact in (asked(f"m{n}"), claimed(), said("x"), closed())),
)


async def test_d4_a_fork_that_was_broken_off_anywhere_owes_nothing_and_is_finished_by_its_repeat() -> None:
    log = [stored(event) for event in history(*LONG)]
    summaries = [e for e in with_summaries(log[:200], random.Random(3)) if e.stream.startswith("summary-")]
    body, context = Fork(at_seq=1041, message=AGAIN), by(command_id=uuid4())
    wanted: list[Any] | None = None
    for appends in range(12):
        store = DyingStore()
        await put(store, [*log, *summaries])
        conversations, around = over(store)
        source_id = decode(log[0]).originator_id
        fork_id = uuid5(context.command_id, "conversation")
        store.appends_left = appends
        broken = True
        try:
            await fork(conversations, source_id, body, context)
            broken = False
        except StoreError:
            left = await whole_log(store, fork_id)
            assert owes_nothing(left)
            assert all(owes_nothing(left[:cut]) for cut in range(1, len(left), 199))
            if left:
                with pytest.raises(ConversationIncomplete):
                    await send_message(conversations, around, fork_id, SendMessage(content="hi"), by())
                with pytest.raises(ConversationIncomplete):
                    await fork(conversations, fork_id, Fork(at_seq=1), by())
        store.appends_left = 10**9
        receipt = await fork(conversations, source_id, body, context)
        assert await fork(conversations, source_id, body, context) == receipt
        with pytest.raises(IdempotencyMismatch):
            await fork(conversations, source_id, body, replace(context, body_hash="other"))
        made = [(e.stream, e.seq, e.type, e.data) for e in await whole_log(store, fork_id)]
        wanted = wanted or sorted(made)
        assert sorted(made) == wanted
        assert around.woken == [fork_id]
        assert folded(await whole_log(store, fork_id)).waiting.keys() == {"again"}
        if not broken:
            return
    raise AssertionError("it never came through")


async def test_one_of_many_at_once_makes_the_fork() -> None:
    store, source_id = await holding(*LONG)
    conversations, _ = over(store)
    body, context = Fork(at_seq=1041, message=AGAIN), by(command_id=uuid4())
    receipts = await asyncio.gather(*(fork(conversations, source_id, body, context) for _ in range(5)))
    assert len(set(map(repr, receipts))) == 1
    assert (await conversations.load(receipts[0].conversation_id)).seq == 1043
