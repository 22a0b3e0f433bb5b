"""A rolling upgrade of a read model: nodes of both versions side by side, and nobody gets wrong rows or an error."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import psycopg
import pytest

from projections.conversations import CONVERSATIONS
from tests.support.program import serve
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOMORROW = Path(__file__).parents[1] / "support" / "tomorrow"
OLD, NEW = CONVERSATIONS.version, CONVERSATIONS.version + 1
STORED = "select version, generation from projections where name = 'conversations'"


class Node:
    """A node, and what it answered; its own words for a read model of another version are no error."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url
        self.errors: list[str] = []

    async def titles(self, position: int = 0) -> list[str] | None:
        """Return the titles of all conversations, None where the read model is of another version."""
        path = f"{self._url}/v1/conversations?min_position={position}&wait_ms=30000"
        async with self._session.get(path) as response:
            body = await response.json()
        if response.status == 503 and body["type"] == "urn:rejoinder:rebuilding":
            assert response.headers["Retry-After"] == "1"
            return None
        if response.status != 200:
            self.errors.append(str(body))
            return None
        return [item["title"] for item in body["items"]]

    async def create(self) -> int:
        """Start a conversation and return its position."""
        async with self._session.post(f"{self._url}/v1/conversations", json={"title": "today"}) as response:
            body: dict[str, Any] = await response.json()
        assert response.status == 201, body
        return int(body["position"])


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_a_rolling_upgrade_has_no_flip_flop_no_wrong_rows_and_no_errors(
    database_url: str, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve("--port", "0", database_url=database_url) as old_process:
        old = Node(session, old_process.url)
        position = await old.create()
        assert await old.titles(position) == ["today"]
        upgraded = asyncio.Event()
        reading = asyncio.create_task(read_on(old, upgraded))
        monkeypatch.setenv("PYTHONPATH", str(TOMORROW))
        async with serve("--port", "0", database_url=database_url) as new_process:
            new = Node(session, new_process.url)
            async with asyncio.timeout(PATIENCE_S):
                while await new.titles() is None:
                    assert not new.errors
            assert await stored(database_url) == (NEW, 2)
            upgraded.set()
            await reading
            for node in (old, new, old):
                position = await node.create()
                assert await old.titles() is None
                titles = await new.titles(position)
                assert titles is not None
                assert set(titles) == {"TOMORROW"}
            monkeypatch.delenv("PYTHONPATH")
            async with serve("--port", "0", database_url=database_url) as late_process:
                late = Node(session, late_process.url)
                position = await late.create()
                assert await late.titles() is None
                assert await new.titles(position) == ["TOMORROW"] * 5
            assert await stored(database_url) == (NEW, 2)
    assert old.errors == new.errors == late.errors == []


async def read_on(node: Node, upgraded: asyncio.Event) -> None:
    """Read all the time; until the upgrade today's rows are served, and from then on none."""
    while (titles := await node.titles()) is not None:
        assert titles == ["today"]
    while not upgraded.is_set():
        assert await node.titles() is None
        await asyncio.sleep(0)


async def stored(database_url: str) -> tuple[int, int]:
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        row = await (await connection.execute(STORED)).fetchone()
    assert row is not None
    return row[0], row[1]


async def test_an_older_version_is_refused_where_the_settings_say_so(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve("--role", "projector", database_url=database_url):
        pass
    monkeypatch.setenv("PYTHONPATH", str(TOMORROW))
    with pytest.raises(AssertionError, match="it ended with 1"):
        async with serve("--port", "0", database_url=database_url, projection_upgrade="refuse"):
            pass
    assert await stored(database_url) == (OLD, 1)
