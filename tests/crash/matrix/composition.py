"""What a victim is made of: the real parts of the program, wired as it wires them, with counted ports between them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from api.http import build_app
from api.resources import Resources
from api.server import listening
from api.streams.hub import StreamHub
from commands.agent.compactor import Compactor
from commands.agent.surroundings import Surroundings
from commands.agent.worker import LEASE_S, Worker
from commands.conversations import Conversations
from domain.tools import Toolset
from infra.agenda import PostgresAgenda, PostgresWaker
from infra.clock import Clock
from infra.database import Database
from infra.leases import Leases
from infra.litellm_model import LiteLLMModel
from infra.live_feed import LiveFeed
from infra.live_turns import PostgresLiveTurns
from infra.owned_conversations import PostgresOwnedConversations
from infra.receipts import PostgresReceipts
from infra.scopes import KeysScopeResolver
from infra.settings import load_settings
from projections.catalog import PROJECTIONS
from projections.projector import Projector
from tests.crash.matrix.ports import CountedAgenda, CountedDatabase, CountedModel, CountedStore, counted_tools
from tests.crash.matrix.stores import open_store
from tests.crash.matrix.tools import make_tools

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.crash.matrix.boundaries import Boundaries
    from tests.crash.matrix.stores import StoreAddress

APPROVAL_TIMEOUT_S = 3600


@dataclass(frozen=True, slots=True)
class Part:
    """What a process is told: its roles, its stores and the model that it asks."""

    roles: tuple[str, ...]
    database_url: str
    store: StoreAddress
    model: str
    model_url: str


@asynccontextmanager
async def composed(part: Part, boundaries: Boundaries) -> AsyncIterator[str]:
    """Run the roles of a process while the block runs; yields the URL of the api, "" without it."""
    settings = load_settings(database_url=part.database_url, port=0, model=part.model, log_level="ERROR")
    tasks: list[asyncio.Task[Any]] = []
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(Database(part.database_url, max_connections=16))
        store = CountedStore(await stack.enter_async_context(open_store(part.store)), boundaries)
        clock = await stack.enter_async_context(Clock(database))
        live = await stack.enter_async_context(PostgresLiveTurns(database))
        conversations = Conversations(store, clock, PostgresReceipts(database), PostgresWaker(database))
        toolset = counted_tools(Toolset(make_tools(boundaries.note)), boundaries)
        stack.push_async_callback(_stop, tasks)
        if "projector" in part.roles:
            counted = CountedDatabase(database, boundaries)
            projector = Projector(store, counted, Leases(database), PROJECTIONS)
            tasks.append(asyncio.create_task(projector.run(), name="projector"))
        if "worker" in part.roles:
            litellm = LiteLLMModel(api_base=part.model_url, api_key="sk-scripted")
            stack.push_async_callback(litellm.close)
            surroundings = Surroundings(
                conversations,
                CountedModel(litellm, boundaries),
                toolset,
                live,
                KeysScopeResolver(None),
                settings.model,
                APPROVAL_TIMEOUT_S,
            )
            agenda = CountedAgenda(PostgresAgenda(database, lease_s=LEASE_S), boundaries)
            worker = Worker(agenda, surroundings, concurrency=settings.worker_concurrency)
            conversations.nearby = worker.hint
            tasks.append(asyncio.create_task(worker.run(), name="worker"))
            compactions = PostgresAgenda(database, lease_s=LEASE_S, kind="compaction")
            compactor = Compactor(CountedAgenda(compactions, boundaries, kind="compaction-"), surroundings)
            tasks.append(asyncio.create_task(compactor.run(), name="compactor"))
        url = ""
        if "api" in part.roles:
            feed = await stack.enter_async_context(LiveFeed(database))
            resources = Resources(settings, None, store, database, conversations, live, toolset)
            hub = StreamHub(store, conversations, feed, PostgresOwnedConversations(database))
            app = build_app(resources, hub.routes())
            app.on_shutdown.append(hub.close)
            url = await stack.enter_async_context(listening(app, settings.host, settings.port))
        yield url


async def _stop(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
