"""10,000 events appended, read, subscribed and folded, on the PostgreSQL store and on EventStoreDB, in one run.

``python -m tests.benchmarks.bench_stores [--quick]``; the PostgreSQL server is an embedded one with fsync. EventStoreDB
is the server that REJOINDER_TEST_ESDB names; without it the double, a process in Python over a file, whose rates say
what the adapter and the protocol cost and nothing of a real server. Conversations are random ones of some thirty
events, in appends of one to three by 16 writers. "read" walks the whole log in pages, "loaded" reads stream by stream,
"subscribed" receives it, "folded" is the projector with all read models, which are in PostgreSQL for either store.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from domain.event_store import NewEvent
from domain.wire import STREAM
from infra.eventstoredb import EventStoreDBEventStore
from infra.migrations import migrate
from infra.postgres_event_store import PostgresEventStore
from tests.support.eventstoredb.process import DoubleProcess
from tests.support.eventstoredb.real import NAMED
from tests.support.postgres import own_postgres
from tests.support.program import data_directory
from tests.support.random_log import random_log
from tests.support.read_side import open_read_side

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from contextlib import AbstractAsyncContextManager

    from domain.event_store import EventStore

EVENTS = 10_000
WRITERS = 16
PAGE = 1_000

Appends: TypeAlias = list[list[NewEvent]]
Rates: TypeAlias = dict[str, float]


def conversations(events: int, chance: random.Random) -> dict[str, Appends]:
    """Make random conversations with so many events in all, or a few more, by their streams."""
    made: dict[str, Appends] = {}
    left = events
    while left > 0:
        log = random_log(chance)
        left -= len(log)
        new = [NewEvent(event.event_id, event.type, event.data, event.metadata) for event in log]
        appends = made[log[0].stream] = []
        while new:
            count = chance.choice((1, 1, 2, 3))
            appends.append(new[:count])
            del new[:count]
    return made


async def rates(store: AbstractAsyncContextManager[EventStore], database_url: str, logs: dict[str, Appends]) -> Rates:
    """Return events per second of a store; read models go into the database, which has none yet."""
    count = sum(len(append) for appends in logs.values() for append in appends)
    took: Rates = {}
    async with open_read_side(database_url, event_store=store) as read_side:
        start, waiting = await read_side.store.head(), list(logs.items())

        async def write() -> None:
            while waiting:
                stream, appends = waiting.pop()
                version = 0
                for append in appends:
                    version = (await read_side.store.append(stream, append, version)).seq

        async def timed(what: str, work: Awaitable[object]) -> None:
            began = time.perf_counter()
            await work
            took[what] = count / (time.perf_counter() - began)

        async def read() -> None:
            position, seen = start, 0
            while page := await read_side.store.read_all(position, limit=PAGE, prefixes=[STREAM]):
                position, seen = page[-1].position, seen + len(page)
            assert seen == count, f"{seen} of {count} events"

        async def load() -> None:
            lengths = [len(await read_side.store.read(stream)) for stream in logs]
            assert sum(lengths) == count

        async def receive() -> None:
            seen = 0
            async with aclosing(read_side.store.subscribe(start, prefixes=[STREAM])) as batches:
                while seen < count:
                    seen += len((await anext(batches)).events)

        async def fold() -> None:
            async with read_side.projecting():
                await read_side.reached(head, timeout_s=600)

        await timed("appended", asyncio.gather(*(write() for _ in range(WRITERS))))
        head = (await read_side.store.read_all(start, limit=count + 1))[-1].position
        await timed("read", read())
        await timed("loaded", load())
        await timed("subscribed", receive())
        await timed("folded", fold())
    return took


def table(found: dict[str, Rates], events: int) -> Table:
    """One row a store, one column a kind of work."""
    shown = Table(box=SIMPLE_HEAD, title=f"{events:,} events, per second")
    shown.add_column("store", no_wrap=True)
    for what in next(iter(found.values())):
        shown.add_column(what, justify="right")
    for name, took in found.items():
        shown.add_row(name, *(f"{rate:,.0f}" for rate in took.values()))
    return shown


async def compare(server: str, events: int) -> dict[str, Rates]:
    """Measure both stores, each with a database of its own on a PostgreSQL server without any of them."""
    chance = random.Random()  # on a shared server, no conversation may be there twice
    found: dict[str, Rates] = {}
    with ExitStack() as stack:
        databases = []
        for _ in range(2):
            name = f"bench_{uuid4().hex}"
            with psycopg.connect(server, autocommit=True) as connection:
                connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
            databases.append(make_conninfo(server, dbname=name))
            await migrate(databases[-1])
        found["PostgreSQL"] = await rates(PostgresEventStore(databases[0]), databases[0], conversations(events, chance))
        name, uri = "EventStoreDB", os.environ.get(NAMED)
        if uri is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            name, uri = "EventStoreDB's double", stack.enter_context(DoubleProcess(folder / "log")).uri
        store = EventStoreDBEventStore(uri, f"bench-{uuid4().hex}-")
        found[name] = await rates(store, databases[1], conversations(events, chance))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{EVENTS // 10:,} events instead of {EVENTS:,}")
    events = EVENTS // 10 if parser.parse_args().quick else EVENTS
    with data_directory() as home, own_postgres(home) as server:
        found = asyncio.run(compare(server.dsn, events))
    Console(width=max(Console().width, 100)).print(table(found, events))


if __name__ == "__main__":
    main()
