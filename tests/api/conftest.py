"""A real server of the HTTP API over a real database, and clients of several callers."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import psycopg
import pytest

from api import readiness
from api.http import build_app
from api.resources import Resources
from api.server import listening
from commands.conversations import Conversations
from commands.ports import NOTHING_SAID, Partial
from domain.tools import Toolset, tool
from infra.clock import Clock
from infra.database import Database
from infra.keys import ApiKeys, KeyEntry
from infra.leases import Leases
from infra.postgres_event_store import PostgresEventStore
from infra.postgres_event_store.store import PATIENCE_SECONDS
from infra.receipts import PostgresReceipts
from infra.settings import Settings
from projections.catalog import PROJECTIONS
from projections.positions import Positions
from projections.projector import Projector
from projections.schema import ensure_schema
from tests.support.stream_nodes import Log, node

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from uuid import UUID

    from api.routing import Route
    from projections.projection import Projection
    from tests.support.stream_nodes import Node

KEYS = {
    "ada": ("acme", "ada", frozenset[Any]()),
    "bob": ("acme", "bob", frozenset[Any]()),
    "approver": ("acme", "alan", frozenset({"approver"})),
    "admin": ("acme", "root", frozenset({"admin"})),
    "stranger": ("evil", "eve", frozenset({"admin"})),
}
"""A key by name → its tenant, user and roles."""


@tool(gate="always")
def send_email(to: str, body: str) -> str:
    """Send an email."""
    return f"sent {body} to {to}"


class NoWorkers:
    """Workers that are never there, and have said nothing."""

    async def wake(self, conversation_id: UUID) -> None:
        """Nobody to wake."""

    async def partial(self, conversation_id: UUID) -> Partial:
        """Nothing is being said."""
        return NOTHING_SAID


@dataclass(frozen=True)
class Api:
    """A running server: where it is, what it works with, and a way to call it."""

    url: str
    resources: Resources
    session: aiohttp.ClientSession
    database_url: str

    async def __call__(
        self, method: str, path: str, *, by: str | None = "ada", headers: dict[str, str] | None = None, **arguments: Any
    ) -> Answer:
        """Call by the key of that name (None: without a key)."""
        authorization = {"Authorization": f"Bearer {by}"} if by else {}
        async with self.session.request(
            method, self.url + path, headers={**authorization, **(headers or {})}, **arguments
        ) as response:
            raw = await response.read()
            is_json = response.content_type.endswith("json")
            return Answer(
                response.status,
                response.headers.copy(),
                await response.json(content_type=None) if is_json else None,
                raw,
            )

    async def new_conversation(
        self, body: dict[str, Any] | None = None, *, by: str = "ada", projected: bool = False
    ) -> str:
        """Create a conversation and return its path, at once or when every read model knows it."""
        created = await self("POST", "/v1/conversations", json=body or {}, by=by)
        assert created.status == 201, created.raw
        if projected:
            await self.projected(created.json["position"])
        return str(created.headers["Location"])

    async def projected(self, position: int) -> None:
        """Wait until every read model has reached a position."""
        names = [projection.name for projection in PROJECTIONS]
        assert await Positions(self.resources.database).wait(names, position, timeout_s=60)

    async def length_of(self, path: str, *, by: str = "ada") -> int:
        """Return how many events a conversation has."""
        return len((await self("GET", f"{path}/events", by=by)).json["items"])


@dataclass(frozen=True)
class Answer:
    """An answer, read to its end."""

    status: int
    headers: Any
    json: Any
    raw: bytes


@asynccontextmanager
async def running(
    database_url: str,
    *,
    keys: ApiKeys | None,
    more: Sequence[Route] = (),
    projecting: bool = True,
    projections: tuple[Projection, ...] = PROJECTIONS,
    patience: float = PATIENCE_SECONDS,
    **settings: Any,
) -> AsyncIterator[Api]:
    """Open everything and serve, with `more` routes; without `projecting` the read models stay empty.

    The log bears its outages for `patience` seconds; who waits for no outage leaves it the time that a server has.
    """
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(PostgresEventStore(database_url, patience=patience))
        database = await stack.enter_async_context(Database(database_url))
        async with database.connection() as connection:
            await ensure_schema(connection, projections)
        if projecting:
            await stack.enter_async_context(working(Projector(store, database, Leases(database), projections)))
        clock = await stack.enter_async_context(Clock(database))
        nobody = NoWorkers()
        resources = Resources(
            settings=Settings(**settings),
            keys=keys,
            event_store=store,
            database=database,
            conversations=Conversations(store, clock, PostgresReceipts(database), nobody),
            partials=nobody,
            toolset=Toolset([send_email]),
            projections=projections,
        )
        url = await stack.enter_async_context(listening(build_app(resources, more), "127.0.0.1", 0))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield Api(url, resources, session, database_url)


@asynccontextmanager
async def working(projector: Projector) -> AsyncIterator[None]:
    """Project while the block runs."""
    task = asyncio.create_task(projector.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


@asynccontextmanager
async def out_of_reach(api: Api, postgres_server: str) -> AsyncIterator[None]:
    """Let nobody connect to the server's database while the block runs."""
    name = psycopg.conninfo.conninfo_to_dict(api.database_url)["dbname"]
    async with await psycopg.AsyncConnection.connect(postgres_server, autocommit=True) as server:
        await server.execute(f'alter database "{name}" with allow_connections false')
        await server.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name])
        try:
            yield
        finally:
            await server.execute(f'alter database "{name}" with allow_connections true')


def api_keys() -> ApiKeys:
    """Return the keys of `KEYS`; a key's text is its name."""
    return ApiKeys(
        KeyEntry(key_sha256=hashlib.sha256(key.encode()).hexdigest(), tenant=tenant, user=user, roles=roles)
        for key, (tenant, user, roles) in KEYS.items()
    )


@pytest.fixture
def patient_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Health checks take nothing for away that is only slow."""
    monkeypatch.setattr(readiness, "PATIENCE_S", 60.0)


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[Api]:
    """A server with keys."""
    async with running(database_url, keys=api_keys()) as running_api:
        yield running_api


@pytest.fixture
async def here(database_url: str) -> AsyncIterator[Node]:
    """A node that serves streams."""
    async with node(database_url) as running_node:
        yield running_node


@pytest.fixture
async def there(database_url: str) -> AsyncIterator[Node]:
    """Another one over the same database."""
    async with node(database_url) as running_node:
        yield running_node


@pytest.fixture
async def log(here: Node) -> Log:
    """A conversation of ada's that has begun."""
    return await Log(here.event_store).start()


@pytest.fixture
async def keyless(database_url: str) -> AsyncIterator[Api]:
    """A server without keys, as on a developer's machine."""
    async with running(database_url, keys=None, cors_origins="https://app.example.org") as running_api:
        yield running_api
