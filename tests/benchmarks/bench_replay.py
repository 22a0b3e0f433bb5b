"""How long a look at a conversation of 100,000 events takes, over HTTP and in the stepper, and what else waits for it.

``python -m tests.benchmarks.bench_replay [--quick]``; `--quick` has 10,000 events. One embedded server; the API runs
in this process, its client in another, one request after the other, each at a random event. "folding from the start"
is the same moment made of all events before it, for the middle of the conversation; `x` is how many times longer that
took than the median, `busy ms` for how long this process worked for one look. "loop blocked" is the longest that the
event loop was kept from going on: how long the process worked meanwhile, and how long it was by the clock, in which
other programs of the machine count too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import statistics
import sys
import time
import urllib.request
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import psycopg
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from api.app import running
from api.cli.stepper import Stepper
from api.cli.stepper_list import EventList
from api.cli.stepper_pane import Pane
from api.debugging.history import History
from api.debugging.moment import Fold
from domain.conversation import Conversation
from domain.wire import conversation_of, dumps
from infra.migrations import migrate
from infra.postgres_event_store import PostgresEventStore
from infra.settings import load_settings
from tests.benchmarks.realistic_log import fill, one_conversation
from tests.support.postgres import own_postgres
from tests.support.program import data_directory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from textual.pilot import Pilot

    from domain.event_store import StoredEvent

EVENTS, QUICK = 100_000, 10_000
LOOKS, STEPS = 200, 100
TICK_S = 0.001


class Measured(NamedTuple):
    """The milliseconds of each look, and for how many this process worked for one, on average."""

    times: list[float]
    busy_ms: float


class Waits:
    """How long an event loop was kept from going on."""

    def __init__(self) -> None:
        self.busy_ms = self.clock_ms = 0.0

    @asynccontextmanager
    async def measured(self) -> AsyncIterator[None]:
        """Measure while the block runs."""
        ticking = asyncio.create_task(self._tick())
        yield
        ticking.cancel()
        with suppress(asyncio.CancelledError):
            await ticking

    async def _tick(self) -> None:
        while True:
            began, busy = time.perf_counter(), time.process_time()
            await asyncio.sleep(TICK_S)
            self.busy_ms = max(self.busy_ms, (time.process_time() - busy) * 1_000)
            self.clock_ms = max(self.clock_ms, (time.perf_counter() - began - TICK_S) * 1_000)

    def __str__(self) -> str:
        return f"{self.busy_ms:.0f} ms ({self.clock_ms:.0f} ms by the clock)"


ASKS: dict[str, Callable[[random.Random, int], str]] = {
    "state?at=": lambda chance, last: f"state?at={chance.randrange(last)}",
    "steps?after=&limit=50": lambda chance, last: f"steps?after={chance.randrange(last)}&limit=50",
    "diff?from=&to=": lambda chance, last: f"diff?from={chance.randrange(last)}&to={chance.randrange(last)}",
}


def client(path: str, last_seq: int, kind: str) -> None:
    """Ask for moments, pages or differences; print the milliseconds of each as JSON."""
    chance = random.Random(1)
    took: list[float] = []
    for _ in range(LOOKS):
        began = time.perf_counter()
        with urllib.request.urlopen(f"{path}/{ASKS[kind](chance, last_seq)}") as answer:
            answer.read()
        took.append((time.perf_counter() - began) * 1_000)
    print(json.dumps(took))


async def from_the_start(history: History, seq: int) -> float:
    """Return the milliseconds of folding all events up to one."""
    began = time.perf_counter()
    fold = Fold(Conversation.at(history.conversation_id))
    async for page in history.pages(upto=seq):
        for event in page:
            fold.take(event)
    return (time.perf_counter() - began) * 1_000


async def stepped(history: History, last_seq: int, waits: Waits) -> dict[str, Measured]:
    """Return the milliseconds from a key until the event is shown: forward, and to events all over the log."""
    chance = random.Random(2)
    took: dict[str, Measured] = {}
    async with Stepper(history, last_seq, "demo", last_seq // 2).run_test(size=(140, 45)) as pilot:
        await _shown(pilot)
        async with waits.measured():
            await _step(pilot, chance, last_seq, took)
    return took


async def _step(pilot: Pilot[None], chance: random.Random, last_seq: int, took: dict[str, Measured]) -> None:
    events = pilot.app.query_one(EventList)
    goes: dict[str, Callable[[], int]] = {
        "stepper: forward": lambda: events.seq + 1,
        "stepper: to any event": lambda: chance.randrange(1, last_seq + 1),
    }
    for name, go in goes.items():
        times, busy = list[float](), time.process_time()
        for _ in range(STEPS):
            began = time.perf_counter()
            events.seq = go()
            await _shown(pilot)
            times.append((time.perf_counter() - began) * 1_000)
        took[name] = Measured(times, (time.process_time() - busy) / STEPS * 1_000)


async def _shown(pilot: Pilot[None]) -> None:
    wanted, pane = f"{pilot.app.query_one(EventList).seq} ", pilot.app.query_one("#event", Pane)
    while not str(pane.border_title).startswith(wanted):  # noqa: ASYNC110 - the screen tells nobody what it has drawn
        await asyncio.sleep(TICK_S)


def resident_mb() -> float:
    """Return the most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def conversation(events: int) -> list[StoredEvent]:
    """Make a conversation that a caller without a key may see."""
    said = one_conversation(events, 0)
    started = json.loads(said[0].data) | {"tenant": "local", "owner": "local"}
    return [replace(said[0], data=dumps(started)), *said[1:]]


def filled(dsn: str, events: int) -> tuple[str, int]:
    """Put the conversation into a log; return its id and length."""
    said = conversation(events)
    with psycopg.connect(dsn) as connection:
        fill(connection, said)
    return str(conversation_of(said[0].stream)), len(said)


async def _run(*arguments: str) -> Any:
    """Run this program for a part of its work; return what it prints."""
    part = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __spec__.name, *arguments, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await part.communicate()
    return json.loads(printed)


async def main(events: int, dsn: str, home: Path) -> None:
    """Measure and print."""
    await migrate(dsn)
    conversation_id, last_seq = await _run("--fill", dsn, str(events))
    settings = load_settings(database_url=dsn, data_dir=home, port=0)
    served, stepping = Waits(), Waits()
    async with running(settings, ("api",)) as url:
        path = f"{url}/v1/conversations/{conversation_id}"
        before = resident_mb()
        took: dict[str, Measured] = {}
        async with served.measured():
            for kind in ASKS:
                busy = time.process_time()
                times = await _run("--client", path, str(last_seq), kind)
                took[kind] = Measured(times, (time.process_time() - busy) / LOOKS * 1_000)
        after = resident_mb()
    async with PostgresEventStore(dsn) as store:
        history = History(store, UUID(conversation_id))
        took |= await stepped(history, last_seq, stepping)
        stepper_mb = resident_mb()
        whole = [await from_the_start(history, last_seq // 2) for _ in range(3)]
    shown = Table(box=SIMPLE_HEAD, title=f"Looking at a conversation of {last_seq:,} events")
    for heading in ("what", "busy ms", "p50 ms", "p95 ms", "max ms", "x"):
        shown.add_column(heading, justify="right")
    for name, (times, busy_ms) in took.items():
        quantiles = statistics.quantiles(times, n=20)
        ratio = statistics.median(whole) / statistics.median(times)
        taken = [busy_ms, statistics.median(times), quantiles[18], max(times)]
        shown.add_row(name, *(f"{ms:.1f}" for ms in taken), f"{ratio:.0f}")
    shown.add_row("folding from the start", "", f"{statistics.median(whole):,.0f}", "", f"{max(whole):,.0f}", "1")
    console = Console()
    console.print(shown)
    console.print(f"loop blocked: {served} serving, {stepping} stepping")
    console.print(
        f"memory: {before:.0f} MB before, {after:.0f} MB after all requests, {stepper_mb:.0f} MB after stepping"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--fill", nargs=2, metavar=("DSN", "EVENTS"), help=argparse.SUPPRESS)
    parser.add_argument("--client", nargs=3, metavar=("PATH", "LAST_SEQ", "KIND"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fill:
        print(json.dumps(filled(given.fill[0], int(given.fill[1]))))
    elif given.client:
        client(given.client[0], int(given.client[1]), given.client[2])
    else:
        with data_directory() as directory, own_postgres(directory) as server:
            asyncio.run(main(QUICK if given.quick else EVENTS, server.dsn, directory))
