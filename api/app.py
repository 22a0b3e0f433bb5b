"""The composition root: opens what the settings name, and wires the roles of a process together."""

from __future__ import annotations

import asyncio
import gc
import logging
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from api.http import build_app
from api.rebuilder import Rebuilder
from api.rebuilding import workshop_of
from api.resources import Resources
from api.server import listening
from api.streams.hub import StreamHub
from commands.agent.compactor import Compactor
from commands.agent.surroundings import Surroundings
from commands.agent.worker import LEASE_S, Worker
from commands.conversations import Conversations
from infra.agenda import PostgresAgenda, PostgresWaker
from infra.audit import PostgresAudit
from infra.audit_expiry import AuditExpiry
from infra.clock import Clock
from infra.database import Database
from infra.demo_model import MODEL as DEMO
from infra.demo_model import DemoModel
from infra.demo_tools import demo_tools
from infra.embedded_postgres import embedded_postgres
from infra.hook_loader import load_hooks
from infra.keys import load_keys
from infra.known_log import check_known_log
from infra.leases import Leases
from infra.litellm_model import LiteLLMModel
from infra.live_feed import LiveFeed
from infra.live_turns import PostgresLiveTurns
from infra.migrations import migrate
from infra.models import ModelRouter
from infra.owned_conversations import PostgresOwnedConversations
from infra.postgres_event_store import PostgresEventStore
from infra.projection_loader import load_projections
from infra.receipts import PostgresReceipts
from infra.scopes import KeysScopeResolver
from infra.settings import POSTGRES, SettingsError, variable
from infra.tool_loader import load_tools
from projections.projector import Projector
from projections.schema import ensure_schema
from projections.versions import refuse_outdated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Coroutine
    from contextlib import AbstractAsyncContextManager

    from domain.event_store import EventStore
    from infra.settings import Settings
    from projections.projection import Projection

logger = logging.getLogger(__name__)

ROLES = ("api", "projector", "worker")
ROLE_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores that the settings name, open and up to date."""

    dsn: str
    database: Database
    event_store: EventStore
    projections: tuple[Projection, ...]


@asynccontextmanager
async def opened_stores(settings: Settings) -> AsyncIterator[Stores]:
    """Open the log and the database, apply migrations, and check that they belong together.

    Raises one clear error for each thing that can be wrong (`EmbeddedPostgresError`, `DatabaseUnavailable`,
    `DatabaseRefused`, `MigrationError`, `SettingsError`, `StoreError`, `LoadError`, `ProjectionMismatch`, `WrongLog`).
    """
    projections = load_projections(settings.projections)
    async with AsyncExitStack() as stack:
        if settings.database_url is None:
            dsn = await stack.enter_async_context(embedded_postgres(settings.data_dir))
        else:
            dsn = settings.database_url.get_secret_value()
        database = await stack.enter_async_context(Database(dsn, max_connections=16))
        await migrate(dsn)
        event_store = await stack.enter_async_context(_event_store(settings, dsn))
        async with database.connection() as connection:
            await ensure_schema(connection, projections)
        await check_known_log(database, event_store)
        yield Stores(dsn, database, event_store, projections)


@asynccontextmanager
async def running(settings: Settings, roles: Collection[str] = ROLES) -> AsyncIterator[str | None]:
    """Run these roles while the block runs; yields the URL that the api listens on, None without that role.

    At the end streams are closed, requests under way are answered, and the agent is drained to its next durable event.
    Raises what `opened_stores` raises, `KeysError`, `LoadError`, and `OSError` for an address that is taken.
    """
    keys = load_keys(settings.api_keys_file) if settings.api_keys_file else None
    hooks = load_hooks(settings.hooks)
    toolset = load_tools(settings.tools, default=demo_tools(settings.data_dir))
    tasks: list[asyncio.Task[None]] = []
    async with AsyncExitStack() as stack:
        stores = await stack.enter_async_context(opened_stores(settings))
        if settings.projection_upgrade == "refuse":
            async with stores.database.connection() as connection:
                await refuse_outdated(connection, stores.projections)
        clock = await stack.enter_async_context(Clock(stores.database))
        live = await stack.enter_async_context(PostgresLiveTurns(stores.database))
        conversations = Conversations(
            stores.event_store, clock, PostgresReceipts(stores.database), PostgresWaker(stores.database)
        )
        if "projector" in roles:
            projector = Projector(stores.event_store, stores.database, Leases(stores.database), stores.projections)
            rebuilder = Rebuilder(settings, stores.dsn, workshop_of(stores), stores.projections)
            for name, run in (("projector", projector.run), ("rebuilder", rebuilder.run)):
                tasks.append(asyncio.create_task(_kept_up(run), name=name))
                stack.push_async_callback(_stop, tasks[-1])
        if "worker" in roles:
            litellm = LiteLLMModel(
                api_base=settings.model_api_base,
                api_key=settings.model_api_key.get_secret_value() if settings.model_api_key else None,
            )
            stack.push_async_callback(litellm.close)
            if settings.model != DEMO:
                stack.push_async_callback(_stop, asyncio.create_task(litellm.warm(), name="warming LiteLLM"))
            audit = None
            if settings.audit == "on":
                redacting = hooks.of("before_audit", None)
                audit = await stack.enter_async_context(PostgresAudit(stores.database, clock, redacting))
            models = ModelRouter(demo=DemoModel(), litellm=litellm)
            surroundings = Surroundings(
                conversations,
                models,
                toolset,
                live,
                KeysScopeResolver(keys),
                settings.model,
                settings.approval_timeout_s,
                settings.compaction_model,
                models,
                hooks,
                audit,
            )
            agenda = PostgresAgenda(stores.database, lease_s=LEASE_S)
            worker = Worker(agenda, surroundings, concurrency=settings.worker_concurrency)
            conversations.nearby = worker.hint
            compactions = PostgresAgenda(stores.database, lease_s=LEASE_S, kind="compaction")
            compactor = Compactor(compactions, surroundings)
            expiry = AuditExpiry(stores.database, clock, ttl_s=settings.audit_ttl_s)
            for working in (worker, compactor, expiry):
                tasks.append(asyncio.create_task(_kept_up(working.run), name=type(working).__name__.lower()))
                stack.push_async_callback(_stop, tasks[-1])
        url = None
        if "api" in roles:
            feed = await stack.enter_async_context(LiveFeed(stores.database))
            resources = Resources(
                settings,
                keys,
                stores.event_store,
                stores.database,
                conversations,
                live,
                toolset,
                stores.projections,
                hooks,
            )
            hub = StreamHub(stores.event_store, conversations, feed, PostgresOwnedConversations(stores.database))
            app = build_app(resources, hub.routes())
            app.on_shutdown.append(hub.close)
            url = await stack.enter_async_context(listening(app, settings.host, settings.port))
        stack.callback(lambda: [task.cancel() for task in tasks])  # comes first: all drain side by side
        gc.freeze()  # what is loaded by now stays: full collections that walk it would stall the loop
        yield url


def _event_store(settings: Settings, dsn: str) -> AbstractAsyncContextManager[EventStore]:
    uri = settings.event_store.get_secret_value()
    if uri == POSTGRES:
        return PostgresEventStore(dsn)
    from infra.eventstoredb.store import EventStoreDBEventStore  # brings gRPC with it: who needs none pays nothing

    try:
        return EventStoreDBEventStore(uri, settings.stream_prefix)
    except ValueError as error:
        raise SettingsError(f"{variable('event_store')}: it {error}") from error


async def _kept_up(role: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run a role until cancelled; should it fail, say so and begin again: the log knows what it was at."""
    while True:
        try:
            await role()
        except Exception:
            logger.exception("a role failed and begins again", extra={"action": "role_failed"})
        await asyncio.sleep(ROLE_PAUSE_S)


async def _stop(task: asyncio.Task[None]) -> None:
    if not task.cancelling():  # a second time would break off what it does to end in good order
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)
