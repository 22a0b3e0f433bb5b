"""Live tokens between processes: coalesced, in order, complete for who comes late, and never in the turn's way."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest

from commands.agent.live import LiveAt
from commands.ports import NOTHING_SAID, Partial
from infra import live_feed
from infra.database import Database
from infra.live_feed import LiveFeed, LiveNews
from infra.live_turns import PostgresLiveTurns
from infra.memory_event_store import MemoryEventStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

HANG_UP = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where pid <> pg_backend_pid() and datname = current_database()
"""


class Watcher:
    """Keeps what it is told, and puts the text together as a client does."""

    def __init__(self) -> None:
        self.news: list[dict[str, Any]] = []
        self.texts = {"text": "", "thinking": ""}
        self._told = asyncio.Event()

    def __call__(self, news: LiveNews) -> None:
        data = json.loads(news.data)
        self.news.append({"name": news.name, **data})
        self.texts[data["kind"]] = data["text"] if news.name == "partial" else self.texts[data["kind"]] + data["text"]
        self._told.set()

    async def until(self, text: str, thinking: str = "") -> None:
        while self.texts != {"text": text, "thinking": thinking}:
            self._told.clear()
            await self._told.wait()

    async def told(self) -> None:
        while not self.news:
            self._told.clear()
            await self._told.wait()

    @property
    def deltas(self) -> list[dict[str, Any]]:
        return [item for item in self.news if item["name"] == "delta"]


class Nodes:
    """Processes over one database, each with its own connections."""

    def __init__(self, dsn: str, stack: AsyncExitStack) -> None:
        self.dsn, self._stack = dsn, stack
        self.log = MemoryEventStore()

    async def speaker(self) -> PostgresLiveTurns:
        database = await self._stack.enter_async_context(Database(self.dsn, max_connections=2))
        return await self._stack.enter_async_context(PostgresLiveTurns(database))

    async def listener(self) -> LiveFeed:
        database = await self._stack.enter_async_context(Database(self.dsn, max_connections=2))
        feed = await self._stack.enter_async_context(LiveFeed(database))
        probe, heard = uuid4(), Watcher()
        with feed.watched(probe, heard):  # rows are read as soon as it listens
            row = f"insert into live_turns values ('{probe}', 1, 1, 1, 1, 1, 'listening') returning 1"
            self.sql(row)
            await heard.until("listening")
        return feed

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
async def nodes(database_url: str) -> AsyncIterator[Nodes]:
    async with AsyncExitStack() as stack:
        yield Nodes(database_url, stack)


async def looked_up(*feeds: LiveFeed) -> None:
    """Wait until what was said before somebody watched has been read: what is said from now on comes as deltas."""
    for feed in feeds:
        await asyncio.gather(*feed._reading)


def at(conversation_id: UUID, *, turn: int = 1, step: int = 1, attempt: int = 1, try_: int = 1) -> LiveAt:
    return LiveAt(conversation_id, turn, step, attempt, try_)


async def test_w2_every_node_gets_each_delta_once_numbered_from_one(nodes: Nodes) -> None:
    speaker, here, there = await nodes.speaker(), await nodes.listener(), await nodes.listener()
    conversation, (one, two) = uuid4(), (Watcher(), Watcher())
    with here.watched(conversation, one), there.watched(conversation, two):
        await looked_up(here, there)
        speaker.publish(at(conversation), "thinking", "hm")
        await asyncio.gather(one.until("", "hm"), two.until("", "hm"))
        for word in ("so ", "it ", "is"):
            speaker.publish(at(conversation), "text", word)
        await asyncio.gather(one.until("so it is", "hm"), two.until("so it is", "hm"))

    for watcher in (one, two):
        assert [delta["index"] for delta in watcher.deltas] == list(range(1, len(watcher.deltas) + 1))
        assert {(d["turn"], d["step"], d["attempt"], d["try"]) for d in watcher.deltas} == {(1, 1, 1, 1)}


async def test_deltas_that_come_together_travel_together(nodes: Nodes) -> None:
    speaker, feed, watcher, conversation = await nodes.speaker(), await nodes.listener(), Watcher(), uuid4()
    with feed.watched(conversation, watcher):
        await looked_up(feed)
        for letter in "coalesced":
            speaker.publish(at(conversation), "text", letter)
        await watcher.until("coalesced")

    assert len(watcher.deltas) == 1


@pytest.mark.parametrize("character", ["x", "\x01", "ü", "😀", '"'])
async def test_a_piece_of_any_size_and_any_characters_arrives_whole(nodes: Nodes, character: str) -> None:
    speaker, feed, watcher, conversation = await nodes.speaker(), await nodes.listener(), Watcher(), uuid4()
    with feed.watched(conversation, watcher):
        speaker.publish(at(conversation), "text", character * 50_000)
        await watcher.until(character * 50_000)


async def test_l11_text_that_no_database_takes_is_cleaned(nodes: Nodes) -> None:
    speaker, feed, watcher, conversation = await nodes.speaker(), await nodes.listener(), Watcher(), uuid4()
    with feed.watched(conversation, watcher):
        speaker.publish(at(conversation), "text", "a\x00b\ud800c")
        await watcher.until("a\ufffdb\ufffdc")


async def test_w2_who_comes_late_gets_all_so_far_once_and_then_only_later_deltas(nodes: Nodes) -> None:
    speaker, feed, early, late, conversation = (
        await nodes.speaker(),
        await nodes.listener(),
        Watcher(),
        Watcher(),
        uuid4(),
    )
    elsewhere = await nodes.listener()
    with feed.watched(conversation, early):
        for i in range(20):
            speaker.publish(at(conversation), "text", f"{i} ")
            await early.until("".join(f"{n} " for n in range(i + 1)))
        with elsewhere.watched(conversation, late):
            await late.until("".join(f"{n} " for n in range(20)))
            speaker.publish(at(conversation), "text", "end")
            await late.until("".join(f"{n} " for n in range(20)) + "end")

    assert [item["kind"] for item in late.news[:2]] == ["thinking", "text"], "the empty one first: it clears"
    assert all(delta["index"] > late.news[0]["index"] for delta in late.deltas)


async def test_w2_a_second_watcher_of_a_node_gets_all_so_far_from_memory(nodes: Nodes) -> None:
    speaker, feed, first, second, conversation = (
        await nodes.speaker(), await nodes.listener(), Watcher(), Watcher(), uuid4()
    )  # fmt: skip
    with feed.watched(conversation, first):
        speaker.publish(at(conversation), "text", "so far")
        await first.until("so far")
        with feed.watched(conversation, second):
            assert second.texts["text"] == "so far"


@pytest.mark.parametrize("again", [{"try_": 2}, {"attempt": 2}, {"try_": 1}], ids=["try", "attempt", "handed back"])
async def test_w2_another_try_clears_what_the_one_before_it_said(nodes: Nodes, again: dict[str, int]) -> None:
    speaker, other, feed, watcher, conversation = (
        await nodes.speaker(), await nodes.speaker(), await nodes.listener(), Watcher(), uuid4()
    )  # fmt: skip
    with feed.watched(conversation, watcher):
        await looked_up(feed)
        speaker.publish(at(conversation), "text", "abandoned")
        await watcher.until("abandoned")
        while (await other.partial(conversation)).text != "abandoned":
            continue
        speaker.clear(conversation)  # whose worker has stopped
        while (await other.partial(conversation)).text:
            continue
        other.restart(at(conversation, **again))
        await watcher.until("")
        other.publish(at(conversation, **again), "text", "new")
        await watcher.until("new")
        while (await other.partial(conversation)).text != "new":
            continue

    assert watcher.news[-1]["index"] == 1


async def test_w2_what_was_read_before_the_same_try_began_again_is_not_shown(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker, other, watcher, conversation = await nodes.speaker(), await nodes.speaker(), Watcher(), uuid4()
    speaker.publish(at(conversation), "text", "abandoned")
    while (await other.partial(conversation)).text != "abandoned":
        continue
    feed = await nodes.listener()
    waiting = "from (select pg_advisory_xact_lock_shared(1)) as held, live_turns"
    read = live_feed.READ.replace("from live_turns", waiting)
    monkeypatch.setattr("infra.live_feed.READ", read)  # waits, and yet returns what there was when it began
    with psycopg.connect(nodes.dsn) as held:
        held.execute("select pg_advisory_xact_lock(1)")
        with feed.watched(conversation, watcher):
            while not await asyncio.to_thread(nodes.sql, "select 1 from pg_locks where not granted"):
                continue
            speaker.clear(conversation)
            other.restart(at(conversation))
            await watcher.told()
            held.rollback()
            await looked_up(feed)
            other.publish(at(conversation), "text", "new")
            await watcher.until("new")

    assert {item["text"] for item in watcher.news} == {"", "new"}


async def test_w2_what_a_superseded_attempt_still_says_is_shown_to_nobody(nodes: Nodes) -> None:
    old, new, feed, watcher, conversation = (
        await nodes.speaker(), await nodes.speaker(), await nodes.listener(), Watcher(), uuid4()
    )  # fmt: skip
    with feed.watched(conversation, watcher):
        old.publish(at(conversation), "text", "old")
        await watcher.until("old")
        new.publish(at(conversation, attempt=2), "text", "new")
        await watcher.until("new")
        old.publish(at(conversation), "text", " and late")
        new.publish(at(conversation, attempt=2), "text", "er")
        await watcher.until("newer")
        assert (await new.partial(conversation)).text in ("new", "newer")


async def test_w2_lost_notifications_are_made_good_by_the_row(nodes: Nodes) -> None:
    speaker, feed, watcher, conversation = await nodes.speaker(), await nodes.listener(), Watcher(), uuid4()
    with feed.watched(conversation, watcher):
        speaker.publish(at(conversation), "text", "before ")
        await watcher.until("before ")
        nodes.sql(HANG_UP)  # of all nodes, also of the speaker
        speaker.publish(at(conversation), "text", "after")
        await watcher.until("before after")


async def test_w2_a_gap_between_deltas_is_filled_not_shown(nodes: Nodes) -> None:
    speaker, feed, watcher, conversation = await nodes.speaker(), await nodes.listener(), Watcher(), uuid4()
    with feed.watched(conversation, watcher):
        speaker.publish(at(conversation), "text", "one ")
        await watcher.until("one ")
        lost = {**watcher.news[-1], "index": 7, "text": "seven", "conversation_id": str(conversation)}
        nodes.sql(f"select pg_notify('live', '{json.dumps(lost)}')")
        nodes.sql("select pg_notify('live', 'not ours')")
        speaker.publish(at(conversation), "text", "two")
        await watcher.until("one two")

    assert all(item["text"] != "seven" for item in watcher.news)


async def test_the_text_so_far_is_known_to_any_process_until_the_log_has_it(nodes: Nodes) -> None:
    speaker, asked, conversation = await nodes.speaker(), await nodes.speaker(), uuid4()
    assert not (await asked.partial(conversation)).text
    feed, watcher = await nodes.listener(), Watcher()
    with feed.watched(conversation, watcher):
        speaker.publish(at(conversation, turn=3, step=2), "text", "half a rep")
        await watcher.until("half a rep")
    while not (await asked.partial(conversation)).text:
        continue
    assert (await asked.partial(conversation)).text == "half a rep"
    assert await asked.partial(conversation) == Partial(3, 2, "half a rep")


async def test_clearing_deletes_the_own_row_but_not_that_of_a_later_attempt(nodes: Nodes) -> None:
    one, two, asked, conversation = *[await nodes.speaker() for _ in range(3)], uuid4()
    one.publish(at(conversation), "text", "mine")
    while (await asked.partial(conversation)).text != "mine":
        continue
    one.clear(conversation)
    while (await asked.partial(conversation)).text:
        continue

    one.publish(at(conversation), "text", "mine")
    two.publish(at(conversation, attempt=2), "text", "theirs")
    while (await asked.partial(conversation)).text != "theirs":
        continue
    one.clear(conversation)
    one.publish(at(other := uuid4()), "text", "sent after the clearing")
    while not (await asked.partial(other)).text:
        continue
    assert (await asked.partial(conversation)).text == "theirs"


async def test_without_a_database_publishing_goes_on_and_nobody_waits(nodes: Nodes) -> None:
    speaker, feed, watcher, conversation = await nodes.speaker(), await nodes.listener(), Watcher(), uuid4()
    with feed.watched(conversation, watcher):
        speaker.publish(at(conversation), "text", "so ")
        await watcher.until("so ")
        nodes.sql("alter table live_turns rename to elsewhere")  # whatever is wrong with it
        for _ in range(100):
            speaker.publish(at(conversation), "text", "x")
        assert await speaker.partial(uuid4()) == NOTHING_SAID
        with feed.watched(uuid4(), Watcher()):
            await asyncio.sleep(0)
        speaker.publish(at(conversation), "text", "y")
        nodes.sql("alter table elsewhere rename to live_turns")
        await watcher.until("so " + "x" * 100 + "y")


async def test_h12_a_process_that_begins_forgets_what_dead_ones_were_saying(nodes: Nodes) -> None:
    listener, heard, (dead, living, speaking) = await nodes.listener(), Watcher(), (uuid4() for _ in range(3))
    nodes.sql(
        f"insert into live_turns select id::uuid, 1, 1, 1, 1, 1, 'half a', '', at "
        f"from (values ('{dead}', now() - interval '1 hour'), ('{living}', now())) as said (id, at)"
    )
    speaker = await nodes.speaker()
    with listener.watched(speaking, heard):
        speaker.publish(at(speaking), "text", "hello")
        await heard.until("hello")
    left = {row[0] for row in nodes.sql("select conversation_id from live_turns")}
    assert living in left
    assert dead not in left
