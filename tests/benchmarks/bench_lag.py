"""From an append's acknowledgement to its rows being readable, at a steady rate, beside `eventsourcing`'s runner.

``python -m tests.benchmarks.bench_lag [--quick]``; one embedded server, fsync on. The events are those of
`realistic_log`, each appended by itself at its time whether or not others are done. "all" are Rejoinder's read models,
full text included, projected by a process of its own; an event counts as readable when a query with ``min_position``
would be answered from the last of them. "runner" is one table of three columns in a process of its own; an event
counts when a poll every 2 ms sees its checkpoint there.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import psycopg
from eventsourcing.projection import ProjectionRunner
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from domain.event_store import NewEvent
from tests.benchmarks.bench_rebuild import Talk, Talks, Texts, ToTexts, environment_of, prepare
from tests.benchmarks.realistic_log import realistic_log
from tests.support.postgres import own_postgres
from tests.support.program import data_directory
from tests.support.read_side import open_read_side

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from domain.event_store import StoredEvent

RATES = (500, 2_000)
LONG_S, SHORT_S = 30, 6
WARM_UP_S = 2
ROOT = Path(__file__).parents[2]
CHECKPOINT = "select coalesce(max(notification_id), 0) from totexts_tracking"


class Run(NamedTuple):
    """Events a second that were readable in the end, and the milliseconds until then."""

    rate: float
    p50: float
    p99: float
    most: float


def run_of(lags: Sequence[float], seconds: float) -> Run:
    ordered = sorted(lags)
    return Run(len(ordered) / seconds, *(ordered[int((len(ordered) - 1) * share)] * 1_000 for share in (0.5, 0.99, 1)))


@contextmanager
def process(*arguments: str) -> Iterator[None]:
    """Run a module of ours beside this process."""
    running = subprocess.Popen([sys.executable, "-m", *arguments], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        running.terminate()
        running.wait()


async def ours(dsn: str, log: Sequence[StoredEvent], rate: int, warm: int) -> Run:
    """Append each event at its time, in the order of its stream; wait for each by itself."""
    lags: list[float] = []
    turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
    async with open_read_side(dsn) as side:
        names = [projection.name for projection in side.projections]

        async def follow(number: int, event: StoredEvent) -> None:
            async with turns[event.stream]:
                new = NewEvent(event.event_id, event.type, event.data, event.metadata)
                appended = await side.store.append(event.stream, [new], event.seq - 1)
            acknowledged = time.perf_counter()
            assert await side.positions.wait(names, appended.position, 120)
            if number >= warm:
                lags.append(time.perf_counter() - acknowledged)

        began = time.perf_counter()
        async with asyncio.TaskGroup() as together:
            for number, event in enumerate(log):
                await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
                together.create_task(follow(number, event))
        return run_of(lags, time.perf_counter() - began - warm / rate)


async def peer(dsn: str, texts: Sequence[str], rate: int, warm: int) -> Run:
    """The library's application saves one event at a time, in a thread; its runner follows in another process."""
    saved: list[tuple[int, float]] = []
    lags: list[float] = []
    began = time.perf_counter()

    def save() -> None:
        talks = Talks(environment_of(dsn))
        talk = Talk()
        for number, text in enumerate(texts):
            time.sleep(max(0.0, began + number / rate - time.perf_counter()))
            if number % 40 == 0:
                talk = Talk()
            talk.say(text)
            recordings = talks.save(talk)
            saved.append((recordings[-1].notification.id, time.perf_counter()))
        talks.close()

    saving = asyncio.create_task(asyncio.to_thread(save))
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        seen = 0
        while not saving.done() or seen < len(saved):
            [(reached,)] = await (await connection.execute(CHECKPOINT)).fetchall()
            now = time.perf_counter()
            while seen < len(saved) and saved[seen][0] <= reached:
                lags.append(max(0.0, now - saved[seen][1]))
                seen += 1
            await asyncio.sleep(0.002)
    await saving
    return run_of(lags[warm:], time.perf_counter() - began - warm / rate)


def follow_talks(dsn: str) -> None:
    """Be the process of the library's runner."""
    with ProjectionRunner(
        application_class=Talks, view_class=Texts, projection_class=ToTexts, env=environment_of(dsn)
    ) as running:
        running.run_forever()


def measure(seconds: int) -> dict[str, Run]:
    results: dict[str, Run] = {}
    with data_directory() as home, own_postgres(home) as server:
        for rate in RATES:
            name, other = (f"bench_{uuid4().hex}" for _ in range(2))
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                for database in (name, other):
                    connection.execute(SQL(f"create database {database}"))
            dsn, peer_dsn = (make_conninfo(server.dsn, dbname=database) for database in (name, other))
            warm = rate * WARM_UP_S
            log = list(realistic_log(rate * seconds + warm))
            asyncio.run(prepare(dsn))
            with process("tests.support.projector_process", dsn, "5", "2"):
                results[f"all, {rate:,}/s"] = asyncio.run(ours(dsn, log, rate, warm))
            Talks(environment_of(peer_dsn)).close()
            with process("tests.benchmarks.bench_lag", "--runner", peer_dsn):
                wait_for_table(peer_dsn)
                results[f"runner, {rate:,}/s"] = asyncio.run(peer(peer_dsn, [one.data for one in log], rate, warm))
    return results


def wait_for_table(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        while connection.execute("select to_regclass('totexts_tracking')").fetchone() == (None,):
            time.sleep(0.05)


def table(results: dict[str, Run]) -> Table:
    """Show lags, and how ours compare with the peer's at the same rate."""
    shown = Table(box=SIMPLE_HEAD, title="Milliseconds from acknowledged to readable")
    for heading in ("", "events/s", "p50", "p99", "most", "p99 by runner's"):
        shown.add_column(heading, justify="left" if not heading else "right")
    for name, run in results.items():
        beside = results[f"runner, {name.partition(', ')[2]}"]
        figures = (f"{run.p50:,.1f}", f"{run.p99:,.1f}", f"{run.most:,.1f}", f"{run.p99 / beside.p99:,.2f}")
        shown.add_row(name, f"{run.rate:,.0f}", *figures)
    return shown


def main(arguments: Sequence[str] | None = None) -> dict[str, Run]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{SHORT_S} seconds for each figure")
    parser.add_argument("--runner", metavar="DSN", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.runner:
        follow_talks(asked.runner)
        return {}
    results = measure(SHORT_S if asked.quick else LONG_S)
    Console(width=max(Console().width, 80)).print(table(results))
    return results


if __name__ == "__main__":
    main()
