"""Bytes on disk and milliseconds a turn of a long conversation, beside LangGraph with its PostgreSQL checkpointer.

``python -m tests.benchmarks.bench_storage [--quick] [--peer PYTHON | --audit]``. The same turns (`turn_shape`: a user's
message, a tool call, a 2 kB result, a reply) on one embedded server, each side in a database of its own, with the same
instant model in the process and without LiteLLM. Ours has the log and every read model, full text included, built while
the turns run, and compacts by the strategy ``window`` to 30,000 tokens. LangGraph runs in its default mode and with
durability ``exit``, in a virtual environment that is made for the run unless `PYTHON` has it. `--audit` shows instead
what ours costs with the audit of model calls on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from commands.agent.compactor import Compactor
from commands.agent.model import ModelReply, ToolRequest
from commands.agent.surroundings import Surroundings
from commands.agent.worker import LEASE_S, Worker
from commands.context import CommandContext
from commands.conversations import Conversations
from commands.create_conversation import CreateConversation, create_conversation
from commands.send_message import SendMessage, send_message
from domain.conversation_settings import ConversationSettings
from domain.parts import text_part
from domain.scope import LOCAL
from domain.tools import Toolset
from domain.wire import stream_of
from infra.agenda import PostgresAgenda, PostgresWaker
from infra.audit import PostgresAudit
from infra.clock import Clock
from infra.database import Database
from infra.leases import Leases
from infra.live_turns import PostgresLiveTurns
from infra.migrations import migrate
from infra.postgres_event_store import PostgresEventStore
from infra.receipts import PostgresReceipts
from infra.scopes import KeysScopeResolver
from projections.catalog import PROJECTIONS
from projections.positions import Positions
from projections.projector import Projector
from projections.schema import ensure_schema
from tests.benchmarks.turn_shape import turn_texts
from tests.support.postgres import own_postgres
from tests.support.program import data_directory

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from pathlib import Path

    from commands.agent.model import Delta, ModelRequest

WINDOW = ConversationSettings.model_validate({"compaction": {"strategy": "window", "budget_tokens": 30_000}})
PEER = ("langgraph", "langgraph-checkpoint-postgres", "psycopg[binary]")
SIZE = """
select sum(pg_total_relation_size(c.oid)) from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r' and n.nspname not in ('pg_catalog', 'information_schema')
"""


class Side(NamedTuple):
    """Bytes on disk, and the milliseconds of each turn."""

    size: int
    turns: list[float]


class InstantModel:
    """The port `Model`: calls the tool first, then replies."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelReply, None]:
        """Answer the newest turn of the request."""
        newest = request.messages[-1]
        turn = int(newest["content"].partition(" ")[0])
        texts = turn_texts(turn)
        if newest["role"] == "user":
            call = ToolRequest(f"call_{turn}", "look_up", json.dumps({"query": f"{turn} {texts.argument}"}))
            yield ModelReply([], (call,), request.model, "tool_calls", None, 1)
        else:
            yield ModelReply([text_part(texts.reply)], (), request.model, "stop", None, 1)


def look_up(query: str) -> str:
    """Look something up."""
    turn = query.partition(" ")[0]
    return f"{turn} {turn_texts(int(turn)).result}"


@asynccontextmanager
async def worked(dsn: str, *, audited: bool = False) -> AsyncIterator[tuple[Conversations, Toolset, PostgresLiveTurns]]:
    """Run a worker and a projector over a database."""
    await migrate(dsn)
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(Database(dsn, max_connections=16))
        store = await stack.enter_async_context(PostgresEventStore(dsn))
        async with database.connection() as connection:
            await ensure_schema(connection, PROJECTIONS)
        clock = await stack.enter_async_context(Clock(database))
        live = await stack.enter_async_context(PostgresLiveTurns(database))
        conversations = Conversations(store, clock, PostgresReceipts(database), PostgresWaker(database))
        toolset = Toolset([look_up])
        audit = await stack.enter_async_context(PostgresAudit(database, clock)) if audited else None
        surroundings = Surroundings(
            conversations, InstantModel(), toolset, live, KeysScopeResolver(None), "instant", 86_400, audit=audit
        )
        worker = Worker(PostgresAgenda(database, lease_s=LEASE_S), surroundings, concurrency=4)
        conversations.nearby = worker.hint
        compactor = Compactor(PostgresAgenda(database, lease_s=LEASE_S, kind="compaction"), surroundings)
        projector = Projector(store, database, Leases(database), PROJECTIONS)
        roles = [asyncio.create_task(role.run()) for role in (projector, worker, compactor)]
        try:
            yield conversations, toolset, live
            positions = Positions(database)
            reached = await positions.wait([one.name for one in PROJECTIONS], await store.head(), 30)
            assert reached, "the read models have the whole log"
        finally:
            for role in roles:
                role.cancel()
            await asyncio.gather(*roles, return_exceptions=True)


async def ours(dsn: str, turns: int, settings: ConversationSettings, *, audited: bool = False) -> Side:
    """Run the turns of one conversation, each from its command to the end of its turn."""
    took = []
    async with worked(dsn, audited=audited) as (conversations, toolset, live):
        body = CreateConversation(settings=settings)
        created = await create_conversation(conversations, toolset, body, command())
        stream = stream_of(created.conversation_id)
        async with aclosing(conversations.store.subscribe_stream(stream, created.seq)) as batches:
            for turn in range(turns):
                message = SendMessage(content=f"{turn} {turn_texts(turn).message}")
                began = time.perf_counter()
                await send_message(conversations, live, created.conversation_id, message, command())
                async for batch in batches:
                    if any(event.type == "turn_ended" for event in batch.events):
                        break
                took.append((time.perf_counter() - began) * 1000)
    return Side(size_of(dsn), took)


def command() -> CommandContext:
    """Return a caller with a new command."""
    return CommandContext(LOCAL, uuid4(), "", keyed=False)


def size_of(dsn: str) -> int:
    """Return the bytes of all tables with their indexes, after VACUUM."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("vacuum analyze")
        row = connection.execute(SIZE).fetchone()
    assert row is not None
    return int(row[0])


def peers(python: str, dsn: str, turns: int, durability: str) -> Side:
    """Run the same turns in LangGraph."""
    program = [python, "-m", "tests.benchmarks.langgraph_peer", dsn, str(turns), durability]
    printed = subprocess.run(program, check=True, capture_output=True, text=True, timeout=1_800).stdout
    return Side(size_of(dsn), json.loads(printed.splitlines()[-1]))


def environment(home: Path) -> str:
    """Make a virtual environment with LangGraph and return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    python = str(home / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", *PEER], check=True)
    return python


def main(turns: int, peer: str | None, *, audit: bool) -> None:
    """Measure and print."""
    with data_directory() as home, own_postgres(home) as server:

        def database(name: str) -> str:
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                connection.execute(f"create database {name}".encode())
            return make_conninfo(server.dsn, dbname=name)

        sides = {"Rejoinder": asyncio.run(ours(database("rejoinder_turns"), turns, WINDOW))}
        if audit:
            audited = ours(database("audited_turns"), turns, WINDOW, audited=True)
            return show(sides | {"with its audit": asyncio.run(audited)}, turns)
        python = peer or environment(home / "peer")
        sides |= {
            "LangGraph, default": peers(python, database("default_turns"), turns, "async"),
            "LangGraph, exit": peers(python, database("exit_turns"), turns, "exit"),
        }
    show(sides, turns)


def show(sides: dict[str, Side], turns: int) -> None:
    """Print a line a side, and our share of each peer's bytes and time."""
    mine = sides["Rejoinder"]
    table = Table("", "bytes", "ours / theirs", "ms/turn", "ours / theirs", "turns 11-30", "last 20", box=SIMPLE_HEAD)
    for name, side in sides.items():
        median = statistics.median(side.turns)
        early, late = statistics.median(side.turns[10:30]), statistics.median(side.turns[-20:])
        table.add_row(
            name,
            f"{side.size:,}",
            f"1/{side.size / mine.size:.1f}",
            f"{median:.1f}",
            f"{statistics.median(mine.turns) / median:.2f}",
            f"{early:.1f}",
            f"{late:.1f}",
        )
    table.title = f"one conversation of {turns} turns"
    Console().print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--peer", metavar="PYTHON")
    parser.add_argument("--audit", action="store_true")
    options = parser.parse_args()
    main(30 if options.quick else 200, options.peer, audit=options.audit)
