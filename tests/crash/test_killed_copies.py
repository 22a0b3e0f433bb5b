"""Imports and forks of a long conversation, killed in the middle beside workers that look for work all the time.

``REJOINDER_LONG=1``: they are killed at more places of a longer one.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import psycopg
import pytest

from domain.wire import stream_of
from tests.support.given import CONVERSATION, asked, claimed, closed, history, said, started, stored
from tests.support.long_form import LONG
from tests.support.program import Program, run, serve
from tests.support.slack import PATIENCE_S
from tests.support.transferring import exported

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TURNS = 2_500 if LONG else 500
EVENTS = 1 + 4 * TURNS
KILLS = (0, 1, 700, EVENTS - 700) if LONG else (700,)
"""The seqs after which an append is stopped, and its process killed."""
STREAM = stream_of(CONVERSATION)
PATH = f"/v1/conversations/{CONVERSATION}"

STOP_APPENDS = """
create or replace function public.stop_appends() returns trigger language plpgsql as $$ begin
    perform pg_advisory_xact_lock_shared(4711);
    return new;
end $$;
create or replace trigger stop_appends before insert on log.events for each row
    when (new.stream like 'conversation-%' and new.seq > {seq}) execute function public.stop_appends();
"""
STOPPED = "select 1 from pg_locks where locktype = 'advisory' and objid = 4711 and not granted"
ADDED = "select type from log.events where stream = %s and seq > %s order by seq"
OVER = "select 1 where not exists (select from pg_locks where locktype = 'advisory' and objid = 4711)"
LENGTH = "select coalesce(max(seq), 0)::int from log.events where stream = %s"
SEEMS_OWED = """
select coalesce(hold_until > now() + interval '1 year', false) from agenda
where kind = 'turn' and conversation_id = %s and seq = %s and at_once
"""
REST_OF_TURN = "select 1 from log.events where stream = %s and seq > %s and type = 'turn_ended'"


class Watched:
    """The log and the agenda, seen from outside."""

    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self._connection = connection

    async def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement."""
        cursor = await self._connection.execute(statement, values or None)
        return await cursor.fetchall() if cursor.description else []

    async def until(self, statement: str, *values: Any) -> Any:
        """Return the first value of a query's first row, once it has one."""
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await self.rows(statement, *values)):  # noqa: ASYNC110 - other processes make it
                await asyncio.sleep(0.02)
        return found[0][0]

    async def length(self, stream: str) -> int:
        """Return how many events a stream has."""
        return int((await self.rows(LENGTH, stream))[0][0])

    @asynccontextmanager
    async def stopping(self, seq: int) -> AsyncIterator[None]:
        """In the block, stop the first append beyond a seq; at its end let it go on, though nobody may wait for it."""
        await self.rows("select pg_advisory_lock(4711)")
        await self.rows(STOP_APPENDS.format(seq=seq))
        yield
        await self.rows("select pg_advisory_unlock(4711)")
        await self.until(OVER)  # a transaction keeps the lock to its end
        await self.rows("drop trigger stop_appends on log.events")

    async def kill(self, program: Program) -> None:
        """Kill a process when an append was stopped."""
        await self.until(STOPPED)
        program.send(signal.SIGKILL)
        await asyncio.to_thread(program.__exit__)


@pytest.fixture
async def watched(database_url: str) -> AsyncIterator[Watched]:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        yield Watched(connection)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An exported conversation that no chunk ends between two turns of; closed, and with a message that waits."""
    facts = [started(tenant="local", owner="local")]
    for turn in range(TURNS):
        facts += [asked(f"m{turn}"), claimed(), said(f"reply {turn}", model="demo"), closed()]
    log = [stored(event) for event in history(*facts, asked("waits"))]
    folder = tmp_path_factory.mktemp("long")
    return exported(folder / "closed.jsonl", log[:-1]), exported(folder / "open.jsonl", log)


async def test_d4_an_import_killed_in_the_middle_runs_nothing_and_the_next_one_finishes_it(
    database_url: str, files: tuple[Path, Path], watched: Watched
) -> None:
    arguments = ("import", str(files[1]), "--resume")
    async with serve("--port", "0", database_url=database_url):
        there = 0
        for seq in KILLS:
            async with watched.stopping(seq):
                await watched.kill(Program(*arguments, database_url=database_url))
            there = await watched.length(STREAM)
            assert there < EVENTS
            if there:
                assert await watched.until(SEEMS_OWED, CONVERSATION, there), "nobody keeps the workers away"
        done = await asyncio.to_thread(run, *arguments, database_url=database_url)
        assert f"{EVENTS + 1 - there:,} events of 1 conversations imported" in done.stdout, done.stderr
        await watched.until(REST_OF_TURN, STREAM, EVENTS)
        added = await watched.rows(ADDED, STREAM, EVENTS)
    assert f"{CONVERSATION}: start a turn for 1 message" in done.stdout
    assert [row[0] for row in added] == ["user_msg", "turn_started", "assistant_msg", "turn_ended"]


async def test_d4_a_fork_killed_in_the_middle_owes_nothing_and_its_repeat_finishes_it(
    database_url: str, files: tuple[Path, Path], watched: Watched
) -> None:
    imported = await asyncio.to_thread(run, "import", str(files[0]), database_url=database_url)
    assert imported.exit_code == 0, imported.stderr
    body = {"before_message": f"m{TURNS - 1}", "message": {"content": "Something else"}, "title": "Another try"}

    async def post(url: str) -> tuple[int, Any]:
        headers = {"Idempotency-Key": "one"}
        async with (
            aiohttp.ClientSession(url) as session,
            session.post(f"{PATH}/fork", json=body, headers=headers) as response,
        ):
            return response.status, await response.json()

    for seq in KILLS:
        async with serve("--port", "0", database_url=database_url) as server:
            async with watched.stopping(seq):
                asking = asyncio.create_task(post(server.url))
                await watched.kill(server.program)
            with pytest.raises(aiohttp.ClientError):
                await asking
    query = "select stream from log.events where seq = 1 and stream <> %s and stream like %s"
    fork = await watched.until(query, STREAM, "conversation-%")
    half, there = fork.removeprefix("conversation-"), await watched.length(fork)
    assert there < EVENTS - 4
    async with serve("--port", "0", database_url=database_url) as server, aiohttp.ClientSession(server.url) as session:
        query = "select due_at is not null from agenda where kind = 'turn' and conversation_id = %s and seq = %s"
        assert not await watched.until(query, half, there)
        refused = await session.post(f"/v1/conversations/{half}/messages", json={"content": "hello?"})
        assert (refused.status, (await refused.json())["type"]) == (409, "urn:rejoinder:incomplete")
        assert await watched.length(fork) == there
        status, answer = await post(server.url)
        assert (status, answer["conversation_id"]) == (201, half)
        assert await post(server.url) == (201, answer)
        await watched.until(REST_OF_TURN, fork, answer["seq"])
        log = await watched.rows("select seq, type from log.events where stream = %s order by seq", fork)
        reached = f"min_position={answer['position']}&wait_ms=30000"
        found = await (await session.get(f"/v1/conversations/{half}?{reached}")).json()
    assert [row[0] for row in log] == list(range(1, len(log) + 1))
    assert [row[1] for row in log[EVENTS - 4 :]] == [
        "fork_completed", "conversation_changed", "user_msg", "turn_started", "assistant_msg", "turn_ended",
    ]  # fmt: skip
    assert (found["title"], found["forked_from"]) == ("Another try", str(CONVERSATION))
    assert found["usage"]["calls"] <= 1
