"""Rebuild of all read models, full text included, beside the `eventsourcing` ProjectionRunner and beside the floor.

``python -m tests.benchmarks.bench_rebuild [--quick] [--events N] [--rounds N]``: 1,000,000 events (``--quick``:
200,000) of `realistic_log` in one embedded server. "rebuild" is the command as a user runs it, start of Python
included. "runner" builds one table of three columns, one event a transaction, from events of the same text (fewer of
them: it is slow).
"floor" is what no rebuild can do without: one SELECT of the log by streams, then COPY of the finished rows, as they
come out of the tables rebuilt before, then their indexes, on one connection. Memory is the command's greatest.

Each is measured in every round, and the median round is shown. "CPU µs" is the time of processors for an event, that of
the server included: other work on the machine changes it less than the time that passes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID, uuid4

import psycopg
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.postgres import PostgresTrackingRecorder
from eventsourcing.projection import Projection as Peer
from eventsourcing.projection import ProjectionRunner
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from infra.database import Database
from infra.migrations import migrate
from projections import tables
from projections.catalog import PROJECTIONS
from projections.schema import ensure_schema
from tests.benchmarks.processor_time import postmaster_of, server_seconds
from tests.benchmarks.realistic_log import fill, realistic_log
from tests.support.postgres import own_postgres
from tests.support.program import data_directory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventsourcing.persistence import Tracking

LONG, SHORT = 1_000_000, 200_000
PEER_EVENTS = 10_000
ROUNDS = 3
READ = "select stream, seq, position, event_id, type, data::text, metadata::text from log.events order by stream, seq"
ROOT = Path(__file__).parents[2]


class Result(NamedTuple):
    """Events per second, microseconds of processors for an event, and megabytes of memory where that was looked at."""

    rate: float
    cost: float | None = None
    megabytes: float | None = None


def rebuild(dsn: str, events: int, *options: str) -> Result:
    """Run the command and measure it, the processes that it starts included."""
    server = postmaster_of(dsn)
    used_before = server_seconds(server)
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "api", "rebuild", "--all", *options],
        cwd=ROOT,
        env=os.environ | {"REJOINDER_DATABASE_URL": dsn},
        stderr=subprocess.DEVNULL if not sys.stderr.isatty() else None,
    )
    _, status, used = os.wait4(process.pid, 0)
    took = time.perf_counter() - began
    assert status == 0, "the rebuild failed"
    cost = used.ru_utime + used.ru_stime + server_seconds(server) - used_before
    return Result(events / took, cost * 1e6 / events, used.ru_maxrss / 1024)


def floor(dsn: str, events: int, home: Path) -> Result:
    """Read the log, write the finished rows, make the indexes."""
    files = {projection.name: home / projection.name for projection in PROJECTIONS}
    made = [tables.Table(projection) for projection in PROJECTIONS]
    with psycopg.connect(dsn, autocommit=True) as connection:
        for projection, table in zip(PROJECTIONS, made, strict=True):
            query = f"copy (select {', '.join(table.columns)} from {projection.name}) to stdout (format binary)"
            with files[projection.name].open("wb") as file, connection.cursor().copy(SQL(query)) as copy:
                file.writelines(copy)
        connection.execute("create schema floor; set search_path to floor")
        for table in made:
            connection.execute(table.create)
        server = postmaster_of(dsn)
        began, used_before = time.perf_counter(), time.process_time() + server_seconds(server)
        with connection.transaction(), connection.cursor("log", binary=True) as cursor:
            cursor.execute(READ)
            while cursor.fetchmany(2_000):
                pass
        for projection, table in zip(PROJECTIONS, made, strict=True):
            query = f"copy {projection.name} ({', '.join(table.columns)}) from stdin (format binary)"
            with files[projection.name].open("rb") as file, connection.cursor().copy(SQL(query)) as copy:
                while data := file.read(1 << 16):
                    copy.write(data)
        connection.execute("set maintenance_work_mem = '128MB'; set max_parallel_maintenance_workers = 0")
        for table in made:
            for index in table.indexes:
                connection.execute(index)
        took = time.perf_counter() - began
        cost = time.process_time() + server_seconds(server) - used_before
        connection.execute("drop schema floor cascade")
    return Result(events / took, cost * 1e6 / events)


class Talk(Aggregate):
    """The peer's conversation."""

    @event("Said")
    def say(self, text: str) -> None:
        """Only the event counts."""


class Texts(PostgresTrackingRecorder):
    """The peer's one small table."""

    def __init__(self, datastore: Any, **arguments: Any) -> None:
        super().__init__(datastore, **arguments)
        self.sql_create_statements.append(
            SQL("create table if not exists texts (talk uuid, version int, text text, primary key ({}))").format(
                SQL("talk, version")
            )
        )

    def add(self, talk: UUID, version: int, text: str, tracking: Tracking) -> None:
        """Insert a row and move the checkpoint, in one transaction."""
        with self.datastore.transaction(commit=True) as cursor:
            cursor.execute("insert into texts values (%s, %s, %s)", (talk, version, text), prepare=True)
            self._insert_tracking(cursor, tracking)


class ToTexts(Peer[Texts]):
    """The peer's projection."""

    name = "totexts"

    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        """Add what was said."""
        self.view.add(
            domain_event.originator_id,
            domain_event.originator_version,
            getattr(domain_event, "text", ""),
            tracking,
        )


class Talks(Application[UUID]):
    """The peer's application."""


def environment_of(dsn: str) -> dict[str, str]:
    """Return what the peer is told by environment variables."""
    address = conninfo_to_dict(dsn)
    return {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": str(address["dbname"]),
        "POSTGRES_HOST": str(address["host"]),
        "POSTGRES_PORT": str(address["port"]),
        "POSTGRES_USER": str(address["user"]),
        "POSTGRES_PASSWORD": "",
        "POSTGRES_SCHEMA": "public",
    }


def runner(dsn: str, events: int) -> Result:
    """Fill the peer's log, then let it build its table."""
    environment = environment_of(dsn)
    texts = [one.data for one in realistic_log(events)]
    talks = Talks(environment)
    while texts:
        talk = Talk()
        for text in texts[:39]:
            talk.say(text)
        texts = texts[39:]
        talks.save(talk)
    last = talks.recorder.max_notification_id()
    talks.close()
    assert last is not None
    began = time.perf_counter()
    with ProjectionRunner(
        application_class=Talks, view_class=Texts, projection_class=ToTexts, env=environment
    ) as running:
        running.wait(last, timeout=600)
    return Result(last / (time.perf_counter() - began))


def table(results: dict[str, list[Result]]) -> Table:
    """Show the median of the rounds, and how ours compare."""
    shown = Table(box=SIMPLE_HEAD, title="Events per second into read models")
    for heading in ("", "events/s", "by runner", "by floor", "CPU µs", "by floor", "MB"):
        shown.add_column(heading, justify="left" if not heading else "right")
    for name, rounds in results.items():
        rate = median(one.rate for one in rounds)
        by_runner = rate / median(one.rate for one in results["runner"])
        beside = list(zip(rounds, results["floor"], strict=False))
        by_floor = median(one.rate / floor.rate for one, floor in beside)
        costs = [(one.cost, floor.cost / one.cost) for one, floor in beside if one.cost and floor.cost]
        figures = [f"{median(column):,.2f}" for column in zip(*costs, strict=True)] or ["", ""]
        memory = max((one.megabytes for one in rounds if one.megabytes), default=None)
        figures += ["" if memory is None else f"{memory:,.0f}"]
        shown.add_row(name, f"{rate:,.0f}", f"{by_runner:,.2f}", f"{by_floor:,.2f}", *figures)
    return shown


async def prepare(dsn: str) -> None:
    """Make the tables of the log and of the read models."""
    await migrate(dsn)
    async with Database(dsn) as database, database.connection() as connection:
        await ensure_schema(connection, PROJECTIONS)


def measure(events: int, rounds: int) -> dict[str, list[Result]]:
    with data_directory() as home, own_postgres(home) as server:
        databases = [f"bench_{uuid4().hex}" for _ in range(2)]
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            for name in databases:
                connection.execute(SQL(f"create database {name}"))
        ours, peers = (make_conninfo(server.dsn, dbname=name) for name in databases)
        asyncio.run(prepare(ours))
        with psycopg.connect(ours) as connection:
            fill(connection, realistic_log(events))
        results = {
            "runner": [runner(peers, min(events, PEER_EVENTS))],
            "rebuild": [],
            "rebuild --fast": [],
            "floor": [],
        }
        for _ in range(rounds):
            results["rebuild"].append(rebuild(ours, events))
            results["rebuild --fast"].append(rebuild(ours, events, "--fast"))
            results["floor"].append(floor(ours, events, home))
    return results


def main(arguments: Sequence[str] | None = None) -> dict[str, list[Result]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{SHORT:,} events")
    parser.add_argument("--events", type=int, help="so many events")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"so many of each, {ROUNDS} if not given")
    asked = parser.parse_args(arguments)
    results = measure(asked.events or (SHORT if asked.quick else LONG), asked.rounds)
    Console(width=max(Console().width, 90)).print(table(results))
    return results


if __name__ == "__main__":
    main()
