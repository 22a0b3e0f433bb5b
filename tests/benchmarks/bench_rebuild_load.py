"""What those who write and read notice of a rebuild of everything: latencies before and during it, and then `verify`.

``python -m tests.benchmarks.bench_rebuild_load [--quick]``. `serve` is a process of its own over a log of 300,000
events (``--quick``: 40,000). Requests begin at a constant rate whatever the answers take: half of them append a message
that asks for no reply, half read the list of conversations or a page of messages. "rebuild" is the command, beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp
import psycopg
from psycopg.conninfo import make_conninfo
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tests.benchmarks.bench_rebuild import prepare, rebuild
from tests.benchmarks.realistic_log import fill, realistic_log
from tests.support.postgres import own_postgres
from tests.support.program import ROOT, data_directory, environment, serve

LONG, SHORT = 300_000, 40_000
RATE = 60
"""Requests a second."""
BASELINE_S = 15


@dataclass
class Phase:
    """Seconds that each request took, and what went wrong."""

    took: dict[str, list[float]] = field(default_factory=lambda: {"append": [], "read": []})
    errors: list[str] = field(default_factory=list)

    def percentile(self, kind: str, share: float) -> float:
        """Return a percentile in milliseconds."""
        took = sorted(self.took[kind])
        return took[int(len(took) * share)] * 1_000 if took else 0.0


class Load:
    """Requests at a constant rate, noted with the phase in which they began."""

    def __init__(self, session: aiohttp.ClientSession, url: str, rate: int) -> None:
        self._session, self._url, self._rate = session, url, rate
        self._conversations: list[str] = []
        self.phase = Phase()

    async def run(self) -> None:
        """Go on until cancelled."""
        for _ in range(20):
            async with self._session.post(f"{self._url}/v1/conversations", json={"title": "load"}) as response:
                self._conversations.append((await response.json())["conversation_id"])
        chance, began, count = random.Random(1), time.monotonic(), 0
        async with asyncio.TaskGroup() as requests:
            while True:
                requests.create_task(self._request(chance.random(), chance.choice(self._conversations)))
                count += 1
                await asyncio.sleep(max(0.0, began + count / self._rate - time.monotonic()))

    async def _request(self, drawn: float, conversation: str) -> None:
        phase, began = self.phase, time.monotonic()
        path = f"{self._url}/v1/conversations"
        if drawn < 0.5:
            body = {"content": "so much to say " * 10, "respond": False}
            kind, asked = "append", self._session.post(f"{path}/{conversation}/messages", json=body)
        else:
            suffix = "?limit=20" if drawn < 0.75 else f"/{conversation}/messages?limit=20"
            kind, asked = "read", self._session.get(path + suffix)
        async with asked as response:
            text = await response.text()
            if response.status >= 400:
                phase.errors.append(f"{kind} {response.status}: {text[:200]}")
        phase.took[kind].append(time.monotonic() - began)


async def command(dsn: str, *arguments: str) -> int:
    """Run a command beside the server."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "api", *arguments), cwd=ROOT, env=environment(database_url=dsn)
    )
    return await process.wait()


async def measure(dsn: str, baseline_s: float, rate: int) -> tuple[Phase, Phase, float]:
    """Return what was noticed before and during the rebuild, and how long it took."""
    async with serve("--port", "0", database_url=dsn) as server, aiohttp.ClientSession() as session:
        load = Load(session, server.url, rate)
        loading = asyncio.create_task(load.run())
        await asyncio.sleep(3)
        before = load.phase = Phase()
        await asyncio.sleep(baseline_s)
        during = load.phase = Phase()
        began = time.monotonic()
        assert await command(dsn, "rebuild", "--all") == 0
        took = time.monotonic() - began
        load.phase = Phase()
        assert await command(dsn, "verify") == 0, "verify is not clean"
        loading.cancel()
        with suppress(asyncio.CancelledError):
            await loading
    return before, during, took


def table(before: Phase, during: Phase) -> Table:
    shown = Table(box=SIMPLE_HEAD, title="Milliseconds, before and during a rebuild of everything")
    for heading in ("", "requests", "errors", "p50", "x", "p99", "x", "longest"):
        shown.add_column(heading, justify="left" if not heading else "right")
    for kind in ("append", "read"):
        for name, phase in (("before", before), ("during", during)):
            cells = [f"{len(phase.took[kind]):,}", str(len(phase.errors))]
            for share in (0.5, 0.99):
                ratio = phase.percentile(kind, share) / max(before.percentile(kind, share), 1e-9)
                cells += [f"{phase.percentile(kind, share):.1f}", f"{ratio:.2f}"]
            shown.add_row(f"{kind}, {name}", *cells, f"{max(phase.took[kind], default=0) * 1_000:.0f}")
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{SHORT:,} events, {BASELINE_S // 3} s before")
    parser.add_argument("--rate", type=int, default=RATE, help=f"requests a second, {RATE} if not given")
    asked = parser.parse_args()
    quick = asked.quick
    events = SHORT if quick else LONG
    with data_directory() as home, own_postgres(home) as server:
        dsn = make_conninfo(server.dsn, dbname="postgres")
        asyncio.run(prepare(dsn))
        with psycopg.connect(dsn) as connection:
            fill(connection, realistic_log(events))
        rebuild(dsn, events)
        before, during, took = asyncio.run(measure(dsn, BASELINE_S / 3 if quick else BASELINE_S, asked.rate))
    console = Console(width=max(Console().width, 100))
    console.print(table(before, during))
    console.print(f"rebuilt {events:,} events and more in {took:.1f} s; verify is clean; errors: {during.errors[:3]}")


if __name__ == "__main__":
    main()
