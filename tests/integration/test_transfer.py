"""Logs go out of one store and into another, and are there what they were; what doesn't fit leaves nothing."""

from __future__ import annotations

import asyncio
import io
import json
import random
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from api.rebuilding import open_log
from api.transfer import examining
from api.transfer.examining import examine
from api.transfer.exporting import export_all, export_named
from api.transfer.importing import append_missing
from api.transfer.reader import ExportError, read_events
from api.transfer.writer import ExportWriter
from commands import chunks
from commands.fork import Fork, fork
from domain.event_store import StoreError
from domain.wire import PREFIXES, conversation_of, stream_of
from infra.agenda import PostgresAgenda
from infra.eventstoredb.store import EventStoreDBEventStore
from infra.import_holds import ImportHolds
from infra.memory_event_store import MemoryEventStore
from infra.postgres_event_store import PostgresEventStore
from projections.catalog import PROJECTIONS
from tests.support.eventstoredb import Double
from tests.support.forking import folded, put, seen, whole_log
from tests.support.given import asked, claimed, closed, history, said, started, stored
from tests.support.projecting import fold_whole, interleaved
from tests.support.read_side import open_read_side
from tests.support.slack import PATIENCE_S
from tests.support.transferring import LOG_ID, exported, some_logs
from tests.unit.test_commands import by, over

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from domain.event_store import Appended, EventStore, NewEvent, StoredEvent
    from tests.support.given import Fact

    OpenStore = Callable[[], AbstractAsyncContextManager[EventStore]]

KINDS = ("memory", "postgres", "eventstoredb")


class NotedHolds:
    """Notes who was held and let go."""

    def __init__(self) -> None:
        self.held: set[UUID] = set()

    async def hold(self, conversation_id: UUID) -> bool:
        self.held.add(conversation_id)
        return True

    async def release(self, conversation_id: UUID) -> None:
        self.held.discard(conversation_id)


@pytest.fixture
def open_store(database_url: str) -> Callable[[str], AbstractAsyncContextManager[EventStore]]:
    @asynccontextmanager
    async def opened(kind: str) -> AsyncIterator[EventStore]:
        match kind:
            case "memory":
                yield MemoryEventStore()
            case "postgres":
                async with PostgresEventStore(database_url) as store:
                    yield store
            case _:
                async with Double() as double, EventStoreDBEventStore(double.uri) as store:
                    yield store

    return opened


def silent(*_: int) -> None:
    """Take no notice."""


async def import_into(store: EventStore, path: Path, holds: Any = None) -> int:
    """Import a file, whatever it owes; return how many events were missing."""
    arrivals = await examine(path, store, silent)
    await append_missing(path, store, holds or NotedHolds(), arrivals, silent)
    return sum(arrival.missing for arrival in arrivals)


async def logs_in(store: EventStore) -> dict[str, list[tuple[Any, ...]]]:
    """Return all streams of conversations, positions apart."""
    events = await store.read_all(0, limit=100_000, prefixes=PREFIXES)
    by_stream = groupby(sorted(events, key=lambda e: (e.stream, e.seq)), lambda event: event.stream)
    return {
        stream: [(event.seq, event.event_id, event.type, event.data, event.metadata) for event in run]
        for stream, run in by_stream
    }


def read_models(log: Iterable[StoredEvent]) -> dict[str, Any]:
    """Fold a log into all rows, positions apart."""
    events = list(log)
    return {
        projection.name: {
            key: {c: v for c, v in row.items() if "position" not in c and (projection.name, c) != ("agenda", "seq")}
            for key, row in fold_whole(projection, events).items()
        }
        for projection in PROJECTIONS
    }


@pytest.mark.parametrize(
    ("source", "target"),
    [("postgres", "eventstoredb"), ("eventstoredb", "postgres"), ("memory", "postgres"), ("postgres", "memory")],
)
async def test_d4_what_is_exported_and_imported_is_the_same_log_and_makes_the_same_read_models(
    source: str, target: str, open_store: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_EVENTS", 7)
    monkeypatch.setattr(examining, "CHUNK_EVENTS", 11)
    chance = random.Random(f"{source} {target}")
    by_conversation = [list(run) for _, run in groupby(some_logs(chance.randrange(99), conversations=3), _owner)]
    path, again = tmp_path / "x.jsonl", tmp_path / "again.jsonl"
    async with open_store(source) as store:
        await put(store, interleaved(by_conversation, chance))
        was = await logs_in(store)
        before = read_models(await store.read_all(0, limit=100_000, prefixes=PREFIXES))
        with path.open("wb") as file:
            writer = ExportWriter(file, LOG_ID)
            await export_named(store, [_owner(run[0]) for run in by_conversation], writer, silent)
            writer.finish()
    async with open_store(target) as store:
        holds = NotedHolds()
        assert await import_into(store, path, holds) == sum(map(len, by_conversation))
        assert holds.held == set()
        assert await logs_in(store) == was
        assert read_models(await store.read_all(0, limit=100_000, prefixes=PREFIXES)) == before
        assert await import_into(store, path) == 0
        with again.open("wb") as file:
            writer = ExportWriter(file, LOG_ID)
            await export_named(store, [_owner(run[0]) for run in by_conversation], writer, silent)
            writer.finish()
        assert await logs_in(store) == was
    first, second = ([replace(event, position=0) for event in read_events(one)] for one in (path, again))
    assert first == second


def _owner(event: StoredEvent) -> UUID:
    return UUID(event.stream.partition("-")[2])


@pytest.mark.parametrize("kind", ["postgres", "eventstoredb"])
async def test_all_conversations_are_exported_but_those_that_were_deleted(
    kind: str, open_store: Callable[[str], Any], database_url: str, tmp_path: Path
) -> None:
    chance = random.Random(5)
    by_conversation = [list(run) for _, run in groupby(some_logs(5, conversations=4), _owner)]
    async with open_store(kind) as store, open_read_side(database_url) as read_side:
        await put(store, interleaved(by_conversation, chance))
        gone = _owner(by_conversation[0][0])
        await store.delete(stream_of(gone))  # its summaries are still there
        out = io.BytesIO()
        writer = ExportWriter(out, LOG_ID)
        async with open_log(read_side.database, store, None) as log:
            await export_all(log, await store.head(), writer, silent)
        writer.finish()
        path = tmp_path / "x.jsonl"
        path.write_bytes(out.getvalue())
        kept = {stream: run for stream, run in (await logs_in(store)).items() if not stream.endswith(str(gone))}
    target = MemoryEventStore()
    await import_into(target, path)
    assert await logs_in(target) == kept


@pytest.mark.parametrize("kind", KINDS)
async def test_d4_what_does_not_fit_is_refused_by_its_line_and_leaves_nothing(
    kind: str, open_store: Callable[[str], Any], tmp_path: Path
) -> None:
    log = [replace(event, position=n) for n, event in enumerate(some_logs(8, conversations=1), 1)]
    own = [event for event in log if event.stream.startswith("conversation-")]
    other = [replace(event, position=event.position + 1000) for event in some_logs(9, conversations=1)]
    path = exported(tmp_path / "x.jsonl", [*other, *log])
    line = len(other) + 2
    async with open_store(kind) as store:

        async def refuses(words: str, named: int) -> None:
            before = await store.head()
            with pytest.raises(ExportError, match=f"^line {named}: .*{words}"):
                await import_into(store, path)
            assert await store.head() == before

        changed = own[3].data.replace("{", '{"new":1,', 1)
        await put(store, [*own[:3], replace(own[3], data=changed)])
        await refuses("says something else", _line(log, own[3], line))
        await put(store, [replace(own[4], event_id=UUID(int=5))])
        await store.delete(own[0].stream)
        await refuses("was erased", line)


def _line(log: Sequence[StoredEvent], event: StoredEvent, first: int) -> int:
    return first + log.index(event)


CLOSED: tuple[Fact, ...] = (started(), asked(), claimed(), said(), closed())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: replace(e, type="note_left"), "does not know the event note_left"),
        (lambda e: replace(e, metadata=e.metadata.replace('"schema_version":1', '"schema_version":9')), "not 9"),
        (lambda e: replace(e, metadata=e.metadata.replace('"schema_version":1', '"schema_version":"1"')), "not 1"),
        (
            lambda e: replace(e, metadata=e.metadata.replace('"kind":', '"kin":')),
            "the turn_started cannot be read: actor.kind: Field required",
        ),
        (lambda e: replace(e, data="{}"), "the turn_started cannot be read: turn: Field required"),
        (lambda e: replace(e, event_id=UUID(int=5)), f"its event_id is {UUID(int=5)}, but .* in its metadata"),
        (
            lambda e: replace(e, type="turn_ended", data='{"turn":1,"outcome":"completed","attempt":1}'),
            "event 3, turn_ended: turn 1 is not open",
        ),
        (lambda e: replace(e, data='{"x":"' + "x" * 600_000 + '"}'), "too large"),
        (lambda e: replace(e, metadata="7"), "its metadata is no object"),
    ],
)
async def test_an_event_that_this_version_cannot_judge_is_refused_by_its_name(
    change: Callable[[StoredEvent], StoredEvent], words: str, tmp_path: Path
) -> None:
    log = [stored(event) for event in history(*CLOSED)]
    path = exported(tmp_path / "x.jsonl", [*log[:2], change(log[2]), *log[3:]])
    store = MemoryEventStore()
    with pytest.raises(ExportError, match=f"^line 4: .*{words}"):
        await import_into(store, path)
    assert await store.head() == 0


async def test_a_log_that_went_on_in_both_places_is_refused_and_one_that_went_on_here_is_left_alone(
    tmp_path: Path,
) -> None:
    facts = (*CLOSED, asked("m2"))
    log = [stored(event) for event in history(*facts)]
    store = MemoryEventStore()
    await put(store, log)
    path = exported(tmp_path / "x.jsonl", log[:5])
    assert await import_into(store, path) == 0
    summary = some_logs(3, conversations=1)
    beside = next(event for event in summary if event.stream.startswith("summary-"))
    named = f"summary-{_owner(log[0])}"
    path = exported(tmp_path / "x.jsonl", [*log[:5], replace(beside, stream=named, seq=1, position=99)])
    with pytest.raises(ExportError, match=r"^line 7: .*goes on in another way here after event 5"):
        await import_into(store, path)
    assert await store.read(named) == []


class DyingStore(MemoryEventStore):
    """The log in memory, which is out of reach after so many appends."""

    appends_left = 10**9

    async def append(self, stream: str, events: Sequence[NewEvent], expected: int) -> Appended:
        if expected != examining.NOWHERE:
            if not self.appends_left:
                raise StoreError("gone")
            self.appends_left -= 1
        return await super().append(stream, events, expected)


async def test_d4_an_import_that_was_broken_off_anywhere_is_held_until_its_repeat_has_finished_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_EVENTS", 5)
    log = some_logs(4, conversations=2, steps=8)
    path = exported(tmp_path / "x.jsonl", log)
    first, second = dict.fromkeys(_owner(event) for event in log)
    appends, broken = 0, True
    while broken:
        store, holds = DyingStore(), NotedHolds()
        store.appends_left, broken = appends, False
        try:
            await import_into(store, path, holds)
        except StoreError:
            broken = True
            for one in (first, second):
                there = [e for e in await store.read_all(0, limit=10_000) if _owner(e) == one]
                whole = len(there) in (0, sum(_owner(event) == one for event in log))
                assert whole or one in holds.held
        store.appends_left = 10**9
        await import_into(store, path, holds)
        assert holds.held == set()
        assert [replace(e, position=0) for e in await store.read_all(0, limit=10_000)] == [
            replace(event, position=0) for event in log
        ]
        appends += 1
    assert appends > 5


async def test_workers_are_kept_away_from_what_is_held(database_url: str) -> None:
    async with open_read_side(database_url) as read_side:
        log = [stored(event) for event in history(started(), asked())]
        conversation_id = conversation_of(log[0].stream)
        assert conversation_id is not None
        holds = ImportHolds(read_side.database)
        agenda = PostgresAgenda(read_side.database, lease_s=600)
        assert await holds.hold(conversation_id)
        assert await holds.hold(conversation_id), "what was left behind is taken over"
        async with read_side.projecting():
            await read_side.reached(await read_side.append(log))
            assert await agenda.claim(10) == []
            assert await agenda.claim_hinted(conversation_id) is None
            await agenda.sweep()
            assert (await agenda.due_in() or 0) > 10**9
            await holds.release(conversation_id)
            [claim] = await agenda.claim(10)
            assert (claim.conversation_id, claim.takeover) == (conversation_id, False)
            assert not await holds.hold(conversation_id), "a worker is at it"
            assert await agenda.extend([claim]) == {conversation_id}
            await agenda.sweep()
            assert await read_side.execute("select kind from agenda") == [("turn",)]


@pytest.mark.parametrize("kinds", [("turn", "compaction"), ("compaction", "turn")])
async def test_a_hold_and_a_projector_that_writes_the_same_rows_in_any_order_wait_for_each_other(
    kinds: tuple[str, str], database_url: str
) -> None:
    conversation_id = UUID(int=9)
    insert = "insert into agenda (conversation_id, kind) values (%s, %s) on conflict (conversation_id, kind) do nothing"
    async with open_read_side(database_url) as read_side, asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        async with read_side.database.connection() as connection, connection.transaction():
            await connection.execute(insert, [conversation_id, kinds[0]])
            holding = tasks.create_task(ImportHolds(read_side.database).hold(conversation_id))
            while not await read_side.execute("select 1 from pg_locks where not granted"):
                pass
            await connection.execute(insert, [conversation_id, kinds[1]])
        assert await holding
        held = await read_side.execute("select kind from agenda where hold_until is not null order by kind")
        assert held == [("compaction",), ("turn",)]


@pytest.mark.parametrize("kind", ["postgres", "eventstoredb"])
async def test_d4_a_fork_is_its_source_up_to_there_on_any_store(kind: str, open_store: Callable[[str], Any]) -> None:
    log = some_logs(16, conversations=1)
    source_id = _owner(log[0])
    async with open_store(kind) as store:
        await put(store, log)
        source = await whole_log(store, source_id)
        conversations, _ = over(store)
        clean = [n for n in range(1, len(log)) if _is_clean(log, n)][-1]
        body, context = Fork(at_seq=clean), by(command_id=UUID(int=9))
        receipt = await fork(conversations, source_id, body, context)
        assert await fork(conversations, source_id, body, context) == receipt
        made = await whole_log(store, receipt.conversation_id)
        assert seen(made) == seen([event for event in source if _is_up_to(event, clean)])
        assert await whole_log(store, source_id) == source


def _is_clean(log: Sequence[StoredEvent], seq: int) -> bool:
    part = [event for event in log if event.seq <= seq and event.stream.startswith("conversation-")]
    return len(part) == seq and folded(part).turn is None


def _is_up_to(event: StoredEvent, seq: int) -> bool:
    if event.stream.startswith("conversation-"):
        return event.seq <= seq
    return int(json.loads(event.data).get("to_seq", seq + 1)) <= seq
