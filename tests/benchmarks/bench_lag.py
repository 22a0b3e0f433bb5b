"""From an append's acknowledgement to its rows being readable, at a steady rate, beside `eventsourcing`'s runner.

``python -m tests.benchmarks.bench_lag [--quick]``; one embedded server, fsync on. The events are those of
`realistic_log`, each appended by itself at its time whether or not others are done (the library's by as many threads
as it takes, up to 8). "all" are Rejoinder's read models, full text included, projected by a process of its own; an
event counts as readable when a query with ``min_position`` would be answered from the last of them. "runner" is one
table of three columns in a process of its own; an event counts when a poll every 2 ms sees its checkpoint there.

Both are measured in turns, and the median round is shown. "CPU µs" is the time of processors for an event: of who
appends and waits, who projects, and the server.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections import defaultdict, deque
from contextlib import contextmanager
from pathlib import Path
from statistics import median
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
from tests.benchmarks.processor_time import postmaster_of, seconds_of, server_seconds
from tests.benchmarks.realistic_log import realistic_log
from tests.support.postgres import own_postgres
from tests.support.program import data_directory
from tests.support.read_side import open_read_side

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from domain.event_store import StoredEvent

RATES = (500, 2_000)
LONG_S, SHORT_S = 12, 5
ROUNDS = 3
WARM_UP_S = 2
WRITERS = 8
ROOT = Path(__file__).parents[2]
CHECKPOINT = "select coalesce(max(notification_id), 0) from totexts_tracking"


class Run(NamedTuple):
    """Events a second that were readable in the end, the milliseconds until then, and microseconds of processors."""

    rate: float
    p50: float
    p99: float
    most: float
    cost: float


def run_of(lags: Sequence[float], seconds: float, used: float) -> Run:
    ordered = sorted(lags)
    p50, p99, most = (ordered[int((len(ordered) - 1) * share)] * 1_000 for share in (0.5, 0.99, 1))
    return Run(len(ordered) / seconds, p50, p99, most, used * 1e6 / len(ordered))


class Used:
    """What this process, another one and the server have used since `begin`."""

    def __init__(self, dsn: str, process: int) -> None:
        self._postmaster, self._process = postmaster_of(dsn), process
        self._before = 0.0

    def begin(self) -> None:
        """Count from here on."""
        self._before += self.seconds

    @property
    def seconds(self) -> float:
        """Seconds of processors."""
        return server_seconds(self._postmaster) + seconds_of(self._process) + time.process_time() - self._before


@contextmanager
def process(*arguments: str) -> Iterator[int]:
    """Run a module of ours beside this process; gives its number."""
    running = subprocess.Popen([sys.executable, "-m", *arguments], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        yield running.pid
    finally:
        running.terminate()
        running.wait()


async def ours(dsn: str, log: Sequence[StoredEvent], rate: int, warm: int, used: Used) -> Run:
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
                if number == warm:
                    used.begin()
                together.create_task(follow(number, event))
        return run_of(lags, time.perf_counter() - began - warm / rate, used.seconds)


async def peer(talks: Talks, dsn: str, texts: Sequence[str], rate: int, warm: int, used: Used) -> Run:
    """The library's application saves one event at a time, in threads; its runner follows in another process."""
    saved: deque[tuple[int, int, float]] = deque()
    began = time.perf_counter()

    def save(numbers: Iterable[int]) -> None:
        for n, number in enumerate(numbers):
            time.sleep(max(0.0, began + number / rate - time.perf_counter()))
            if number == warm:
                used.begin()
            if n % 40 == 0:
                talk = Talk()
            talk.say(texts[number])
            recordings = talks.save(talk)
            saved.append((recordings[-1].notification.id, number, time.perf_counter()))

    together = asyncio.gather(*(asyncio.to_thread(save, range(first, len(texts), WRITERS)) for first in range(WRITERS)))
    lags: list[float] = []
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        while not together.done() or saved:
            [(reached,)] = await (await connection.execute(CHECKPOINT)).fetchall()
            now = time.perf_counter()
            waiting = [saved.popleft() for _ in range(len(saved))]
            saved.extend(one for one in waiting if one[0] > reached)
            lags += [max(0.0, now - at) for place, number, at in waiting if place <= reached and number >= warm]
            await asyncio.sleep(0.002)
    await together
    return run_of(lags, time.perf_counter() - began - warm / rate, used.seconds)


def follow_talks(dsn: str) -> None:
    """Be the process of the library's runner."""
    with ProjectionRunner(
        application_class=Talks, view_class=Texts, projection_class=ToTexts, env=environment_of(dsn)
    ) as running:
        running.run_forever()


def measure(seconds: int, rounds: int) -> dict[str, list[Run]]:
    results: dict[str, list[Run]] = {f"{who}, {rate:,}/s": [] for rate in RATES for who in ("all", "runner")}
    with data_directory() as home, own_postgres(home) as server:
        for _ in range(rounds):
            for rate in RATES:
                warm = rate * WARM_UP_S
                log = list(realistic_log(rate * seconds + warm))
                dsn, peer_dsn = (_database(server.dsn) for _ in range(2))
                asyncio.run(prepare(dsn))
                with process("tests.support.projector_process", dsn, "5", "2") as projector:
                    run = asyncio.run(ours(dsn, log, rate, warm, Used(dsn, projector)))
                results[f"all, {rate:,}/s"].append(run)
                talks = Talks(environment_of(peer_dsn) | {"POSTGRES_POOL_SIZE": str(WRITERS)})
                with process("tests.benchmarks.bench_lag", "--runner", peer_dsn) as runner:
                    wait_for_table(peer_dsn)
                    texts = [one.data for one in log]
                    run = asyncio.run(peer(talks, peer_dsn, texts, rate, warm, Used(peer_dsn, runner)))
                talks.close()
                results[f"runner, {rate:,}/s"].append(run)
    return results


def _database(server: str) -> str:
    name = f"bench_{uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(SQL(f"create database {name}"))
    return make_conninfo(server, dbname=name)


def wait_for_table(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        while connection.execute("select to_regclass('totexts_tracking')").fetchone() == (None,):
            time.sleep(0.05)


def table(results: dict[str, list[Run]]) -> Table:
    """Show the median of the rounds, and how ours compare with the peer's at the same rate."""
    shown = Table(box=SIMPLE_HEAD, title="Milliseconds from acknowledged to readable")
    for heading in ("", "events/s", "p50", "p99", "most", "p99 by runner's", "CPU µs"):
        shown.add_column(heading, justify="left" if not heading else "right")
    for name, rounds in results.items():
        beside = results[f"runner, {name.partition(', ')[2]}"]
        by_runner = median(run.p99 / other.p99 for run, other in zip(rounds, beside, strict=True))
        run = Run(*map(median, zip(*rounds, strict=True)))
        figures = (f"{run.p50:,.1f}", f"{run.p99:,.1f}", f"{run.most:,.1f}", f"{by_runner:,.2f}", f"{run.cost:,.0f}")
        shown.add_row(name, f"{run.rate:,.0f}", *figures)
    return shown


def main(arguments: Sequence[str] | None = None) -> dict[str, list[Run]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{SHORT_S} seconds for each figure")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"so many of each, {ROUNDS} if not given")
    parser.add_argument("--runner", metavar="DSN", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.runner:
        follow_talks(asked.runner)
        return {}
    results = measure(SHORT_S if asked.quick else LONG_S, asked.rounds)
    Console(width=max(Console().width, 90)).print(table(results))
    return results


if __name__ == "__main__":
    main()
