"""Rebuilds and checks as users start them: by HTTP and from the command line, beside a server."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
import psycopg
import pytest
from psycopg import sql

from infra.database import Database
from projections.positions import Positions
from tests.support.program import Program, run, serve
from tests.support.slack import PATIENCE_S
from tests.support.system import System

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

LOOK_AGAIN_S = 0.05
INDEXED = "select 1 from rebuilds where indexed"
TRACES = "select (select count(*) from rebuilds), (select count(*) from pg_namespace where nspname like 'rejoinder%')"


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def call(session: aiohttp.ClientSession, method: str, url: str, **arguments: Any) -> tuple[int, Any]:
    async with session.request(method, url, **arguments) as response:
        return response.status, await response.json()


async def generation(session: aiohttp.ClientSession, url: str, name: str) -> int:
    _, found = await call(session, "GET", f"{url}/v1/projections")
    return int(next(item["generation"] for item in found["items"] if item["name"] == name))


async def execute(database_url: str, statement: str) -> list[tuple[Any, ...]]:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        cursor = await connection.execute(statement)
        return await cursor.fetchall() if cursor.description else []


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if await holds():
                return
            await asyncio.sleep(LOOK_AGAIN_S)


@asynccontextmanager
async def no_swap_of(database_url: str, name: str) -> AsyncIterator[None]:
    """Read a read model in a transaction, during which none can take its place."""
    async with await psycopg.AsyncConnection.connect(database_url) as reader:
        await reader.execute(sql.SQL("select conversation_id from {}").format(sql.Identifier(name)))
        yield


async def test_r5_a_rebuild_is_asked_for_by_http_once_at_a_time_and_can_be_given_up(
    database_url: str, session: aiohttp.ClientSession
) -> None:
    async with serve("--port", "0", database_url=database_url) as server:
        _, created = await call(session, "POST", f"{server.url}/v1/conversations", json={"message": {"content": "hi"}})
        path = f"{server.url}/v1/projections/display_messages/rebuild"

        async def is_measured() -> bool:
            async with session.get(f"{server.url}/metrics") as response:
                return 'rejoinder_projection_rebuild_total{projection="display_messages"}' in await response.text()

        async def is_rebuilt() -> bool:
            return await generation(session, server.url, "display_messages") == 2

        async def is_without_trace() -> bool:
            return await execute(database_url, TRACES) == [(0, 0)]

        assert (await call(session, "POST", f"{server.url}/v1/projections/nothing/rebuild"))[0] == 404
        assert (await call(session, "DELETE", path))[0] == 404
        async with no_swap_of(database_url, "display_messages"):
            status, asked = await call(session, "POST", path)
            assert (status, asked["name"], asked["rebuild"]["done"]) == (202, "display_messages", 0)
            status, problem = await call(session, "POST", path)
            assert (status, problem["type"]) == (409, "urn:rejoinder:rebuilding")
            _, found = await call(session, "GET", f"{server.url}/v1/projections")
            rebuilds = {item["name"]: item["rebuild"] for item in found["items"]}
            assert rebuilds.pop("display_messages") is not None
            assert set(rebuilds.values()) == {None}
            await until(is_measured)
        await until(is_rebuilt)
        _, shown = await call(session, "GET", f"{server.url}/v1/conversations/{created['conversation_id']}/messages")
        assert shown["items"][0]["content"]["text"] == "hi"
        async with no_swap_of(database_url, "display_messages"):
            assert (await call(session, "POST", path))[0] == 202
            assert (await call(session, "DELETE", path))[0] == 202
            await until(is_without_trace)
        assert await is_rebuilt(), "a second time it was given up"


async def test_verify_finds_a_planted_row_that_a_rebuild_removes(
    database_url: str, session: aiohttp.ClientSession
) -> None:
    async with serve("--port", "0", database_url=database_url) as server:
        conversation = await System(server.url, session).start("hi")
        position = (await conversation.turn_ends())[-1]["position"]
        async with Database(database_url, max_connections=1) as database:
            assert await Positions(database).wait(["conversations", "usage"], position, PATIENCE_S)
        await execute(database_url, "update conversations set title = 'planted'")
        found = await asyncio.to_thread(run, "verify", database_url=database_url)
        assert found.exit_code == 1
        assert f"conversations[conversation_id={conversation.id}].title: " in found.stdout
        assert 'the log says null, the table "planted"' in found.stdout
        assert "usage: 1 rows, as the log says" in found.stdout
        rebuilt = await asyncio.to_thread(run, "rebuild", "conversations", database_url=database_url)
        assert (rebuilt.exit_code, rebuilt.stdout) == (0, "")
        assert rebuilt.stderr.splitlines()[-1].startswith("conversations: done in ")
        clean = await asyncio.to_thread(run, "verify", database_url=database_url)
        assert (clean.exit_code, "differences" in clean.stdout) == (0, False)


async def test_r5_a_rebuild_ends_with_the_server_that_makes_it_and_can_be_gone_on_with(
    database_url: str, session: aiohttp.ClientSession
) -> None:
    async def is_alone() -> bool:
        return not await execute(database_url, "select from pg_stat_activity where application_name ~ 'rejoinder'")

    async with (
        serve("--port", "0", "--role", "api,projector", database_url=database_url) as server,
        no_swap_of(database_url, "usage"),
    ):
        assert (await call(session, "POST", f"{server.url}/v1/projections/usage/rebuild"))[0] == 202
        await until(partial(execute, database_url, INDEXED))
        await server.kill()
        await until(is_alone)
    assert await execute(database_url, "select holder, indexed from rebuilds") == [(None, True)]


async def test_r5_ctrl_c_gives_a_rebuild_up_and_leaves_no_trace(database_url: str) -> None:
    await asyncio.to_thread(run, "projections", database_url=database_url)

    async with no_swap_of(database_url, "conversations"):
        with Program("rebuild", "--all", database_url=database_url) as rebuilding:
            await until(partial(execute, database_url, INDEXED))
            ended = await asyncio.to_thread(rebuilding.stop, signal.SIGINT)
    *_, said = ended.stderr.splitlines()  # a slow one says how far it is
    assert (ended.exit_code, said.partition(": ")[2]) == (130, "cancelled, the read models stay as they were")
    assert await execute(database_url, TRACES) == [(0, 0)]


async def test_wrong_names_are_wrong_usage(database_url: str) -> None:
    for arguments in (["rebuild"], ["rebuild", "nothing"], ["rebuild", "usage", "--all"], ["verify", "nothing"]):
        ended = await asyncio.to_thread(run, *arguments, database_url=database_url)
        assert ended.exit_code == 2
        assert len(ended.stderr.splitlines()) == 1
