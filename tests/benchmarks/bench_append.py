"""Appends per second of our PostgreSQL log beside the `eventsourcing` recorder and a bare grouped INSERT, in one run.

``python -m tests.benchmarks.bench_append [--quick]``; all on one embedded server, fsync on. A writer appends one event
of about 350 bytes of data and 200 of metadata, waits until it is durable, and does so again; every 40 events it takes a
new stream. "recorder" is `eventsourcing`'s as it comes, "functions" with its POSTGRES_ENABLE_DB_FUNCTIONS; their
writers are threads. "bare" is a grouped INSERT of our rows by one blocking client, as many rows as there are writers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import threading
import time
from collections import defaultdict
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import psycopg
from eventsourcing.persistence import StoredEvent as RecordedEvent
from eventsourcing.postgres import PostgresFactory
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from domain.event_store import NewEvent
from infra.migrations import migrate
from infra.postgres_event_store import PostgresEventStore
from tests.support.postgres import own_postgres
from tests.support.program import data_directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from eventsourcing.persistence import ApplicationRecorder

WRITERS = (1, 8, 64, 512)
STREAM_EVENTS = 40
DATA = json.dumps({"message_id": str(uuid4()), "role": "user", "content": [{"type": "text", "text": "word " * 55}]})
METADATA = json.dumps({"occurred_at": "2026-11-21T12:00:00Z", "correlation_id": str(uuid4()), "actor": "a" * 80})
EVENTS = [NewEvent(uuid4(), "user_msg", DATA, METADATA) for _ in range(4_096)]

BARE_TABLE = """
create table bare (
    position bigint generated always as identity primary key, event_id uuid not null, stream text collate "C" not null,
    seq integer not null, type text collate "C" not null, data json not null, metadata json not null,
    unique (stream, seq)
)
"""
BARE_INSERT = """
insert into bare (event_id, stream, seq, type, data, metadata)
select * from unnest(%b::uuid[], %b::text[], %b::integer[], %b::text[], %b::text[]::json[], %b::text[]::json[])
"""


class Run(NamedTuple):
    """Appends a second, and the milliseconds within which 50 % and 99 % of them were acknowledged."""

    rate: float
    p50: float
    p99: float


def run_of(latencies: list[float], seconds: float) -> Run:
    latencies.sort()
    return Run(len(latencies) / seconds, *(latencies[int(len(latencies) * share)] * 1_000 for share in (0.5, 0.99)))


def ours(dsn: str, writers: int, seconds: float) -> Run:
    """Writers are tasks of one event loop."""

    async def measure() -> Run:
        latencies: list[float] = []
        async with PostgresEventStore(dsn) as store:
            began = time.perf_counter()
            until = began + seconds

            async def write() -> None:
                events = cycle(EVENTS)
                while time.perf_counter() < until:
                    stream = f"conversation-{uuid4()}"
                    for version in range(STREAM_EVENTS):
                        sent = time.perf_counter()
                        if sent >= until:
                            return
                        await store.append(stream, [next(events)], version)
                        latencies.append(time.perf_counter() - sent)

            await asyncio.gather(*(write() for _ in range(writers)))
            return run_of(latencies, time.perf_counter() - began)

    return asyncio.run(measure())


def recorder(dsn: str, writers: int, seconds: float, *, functions: bool) -> Run:
    """Writers are threads, for the library's recorder blocks; its pool is as its factory makes it."""
    address = conninfo_to_dict(dsn)
    environment = {
        "POSTGRES_DBNAME": str(address["dbname"]),
        "POSTGRES_HOST": str(address["host"]),
        "POSTGRES_PORT": str(address["port"]),
        "POSTGRES_USER": str(address["user"]),
        "POSTGRES_PASSWORD": "",
        "POSTGRES_ENABLE_DB_FUNCTIONS": "y" if functions else "n",
        "POSTGRES_SCHEMA": "public",
    }
    factory = PostgresFactory(environment)
    recorder: ApplicationRecorder = factory.application_recorder()
    state = (DATA + METADATA).encode()
    latencies: list[float] = []
    began = time.perf_counter()
    until = began + seconds

    def write() -> None:
        while time.perf_counter() < until:
            stream = uuid4()
            for version in range(1, STREAM_EVENTS + 1):
                sent = time.perf_counter()
                if sent >= until:
                    return
                recorder.insert_events([RecordedEvent(stream, version, "user_msg", state)])
                latencies.append(time.perf_counter() - sent)

    threads = [threading.Thread(target=write) for _ in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    factory.close()
    return run_of(latencies, took)


def bare_insert(dsn: str, writers: int, seconds: float) -> Run:
    """One blocking client that has all rows of a group at hand."""
    latencies: list[float] = []
    events = cycle(EVENTS)
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.cursor(binary=True)
        began = time.perf_counter()
        until = began + seconds
        while time.perf_counter() < until:
            streams = [f"conversation-{uuid4()}" for _ in range(writers)]
            for seq in range(1, STREAM_EVENTS + 1):
                group = [next(events) for _ in range(writers)]
                sent = time.perf_counter()
                if sent >= until:
                    break
                columns = (
                    [event.event_id for event in group],
                    streams,
                    [seq] * writers,
                    [event.type for event in group],
                    [event.data for event in group],
                    [event.metadata for event in group],
                )
                cursor.execute(BARE_INSERT, columns, prepare=True)
                latencies += [time.perf_counter() - sent] * writers
    return run_of(latencies, time.perf_counter() - began)


CONTENDERS: dict[str, Callable[[str, int, float], Run]] = {
    "ours": ours,
    "recorder": lambda dsn, writers, seconds: recorder(dsn, writers, seconds, functions=False),
    "functions": lambda dsn, writers, seconds: recorder(dsn, writers, seconds, functions=True),
    "bare": bare_insert,
}


def table(runs: dict[tuple[str, int], list[Run]]) -> Table:
    """Rates are medians over the rounds; a ratio is the median of ours by theirs, round by round."""
    others = list(CONTENDERS)[1:]
    shown = Table(box=SIMPLE_HEAD, title="Durable appends of one event per second; x = ours by theirs")
    for heading in ("writers", "ours", "p50 ms", "p99 ms", *(column for name in others for column in (name, "x"))):
        shown.add_column(heading, justify="right", no_wrap=True)
    for writers in WRITERS:
        own = runs["ours", writers]
        cells = [f"{statistics.median(run.rate for run in own):,.0f}"]
        cells += [
            f"{statistics.median(run.p50 for run in own):.2f}",
            f"{statistics.median(run.p99 for run in own):.2f}",
        ]
        for name in others:
            theirs = runs[name, writers]
            ratio = statistics.median(ours.rate / other.rate for ours, other in zip(own, theirs, strict=True))
            cells += [f"{statistics.median(run.rate for run in theirs):,.0f}", f"{ratio:.2f}"]
        shown.add_row(str(writers), *cells)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 rounds of 0.5 s each instead of 5 of 2 s")
    rounds, seconds = (3, 0.5) if parser.parse_args().quick else (5, 2.0)
    with data_directory() as home, own_postgres(home) as server:
        dsn = make_conninfo(server.dsn)
        asyncio.run(migrate(dsn))
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(BARE_TABLE)
        runs: dict[tuple[str, int], list[Run]] = defaultdict(list)
        for _ in range(rounds):
            for writers in WRITERS:
                for name, contender in CONTENDERS.items():
                    runs[name, writers].append(contender(dsn, writers, seconds))
    Console(width=max(Console().width, 110)).print(table(runs))


if __name__ == "__main__":
    main()
