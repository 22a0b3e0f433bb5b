"""Processes with the role `worker` for tests that kill or stop them, and what such tests look at."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.support.system import of_type, system_over, types

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path
    from uuid import UUID

    from tests.support.forked import Forked, Forker
    from tests.support.model_server import ModelServer
    from tests.support.system import Conversation, Event, System

REST_S = 60
EXPIRE = """
with expired as (
    update agenda set hold_until = clock_timestamp() where claimed_by = any(%s) returning kind)
select pg_notify('agenda ' || kind, '0') from expired
"""


@pytest.fixture
async def front(database_url: str, model_server: ModelServer) -> AsyncIterator[System]:
    """The roles that nothing happens to."""
    async with system_over(database_url, model_server, ["api", "projector"]) as system:
        yield system


class Workers:
    """Starts workers over one database and one model server, with the tools of `file_tools`."""

    def __init__(self, forker: Forker, database_url: str, model_server: ModelServer) -> None:
        self._forker, self._database_url, self._model_server = forker, database_url, model_server

    def one(self, role: str = "worker", **settings: str) -> AbstractAsyncContextManager[Forked]:
        """A process of its own."""
        given = {
            "database_url": self._database_url,
            "port": "0",
            "model": "openai/scripted",
            "model_api_base": self._model_server.url,
            "model_api_key": "sk-scripted",
            "tools": "tests.support.agent_tools,tests.support.file_tools",
            "log_level": "ERROR",
        }
        return self._forker.serve("--role", role, **(given | settings))

    async def claims(self) -> list[UUID]:
        """Return the claims that there are, such as those of the dead before anybody else has begun."""
        async with self.connection() as connection:
            cursor = await connection.execute("select claimed_by from agenda where claimed_by is not null")
            return [claim for (claim,) in await cursor.fetchall()]

    async def expire_leases(self, claims: list[UUID] | None = None) -> None:
        """Let claims (all) end now, for those who have not got the time: the claims of the dead, beside living ones."""
        async with self.connection() as connection:
            await connection.execute(EXPIRE, [await self.claims() if claims is None else claims])

    async def rest(self) -> None:
        """Wait until nobody holds a conversation any more."""
        async with self.connection() as connection, asyncio.timeout(REST_S):
            while True:
                cursor = await connection.execute("select 1 from agenda where claimed_by is not null")
                if await cursor.fetchone() is None:
                    return
                await asyncio.sleep(0.02)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.AsyncConnection]:
        """Lend a connection to the database."""
        async with await psycopg.AsyncConnection.connect(self._database_url, autocommit=True) as connection:
            yield connection


@pytest.fixture
def workers(forker: Forker, database_url: str, model_server: ModelServer) -> Workers:
    """A way to start workers."""
    return Workers(forker, database_url, model_server)


async def whole_log(conversation: Conversation) -> list[Event]:
    """Return the log of a conversation, however long it is."""
    events: list[Event] = []
    after: object = 0
    while after is not None:
        page = await conversation.system.get(f"{conversation.path}/events?oldest=true&limit=200&after={after}")
        events += page["items"]
        after = page["next_cursor"]
    return events


def assert_paid_once(events: list[Event]) -> None:
    """Every message was answered by one turn, every turn has one end and each step one reply, every call one result."""
    answered = [one for started in of_type(events, "turn_started") for one in started["answers"]]
    assert len(answered) == len(set(answered)), "a message was answered twice"
    ended = [one["turn"] for one in of_type(events, "turn_ended")]
    assert ended == [one["turn"] for one in of_type(events, "turn_started")], "turns and their ends"
    steps = [(one["turn"], one["step"]) for one in of_type(events, "assistant_msg")]
    assert len(steps) == len(set(steps)), "a step has two replies"
    results = [one["tool_call_id"] for one in of_type(events, "tool_result")]
    assert sorted(results) == sorted(one["tool_call_id"] for one in of_type(events, "tool_call"))
    asked = [one["tool_call_id"] for one in of_type(events, "resolution")]
    assert len(asked) == len(set(asked)), "a question has two answers"
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert types(events)[0] == "conversation_started"


def runs_noted(path: Path) -> list[dict[str, Any]]:
    """Return what tools of `file_tools` noted in a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
