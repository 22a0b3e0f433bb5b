"""From an append to its event at the clients of a stream, beside a bare aiohttp server that writes it, in one run.

``python -m tests.benchmarks.bench_sse [--quick]``. `serve --role api` is a process of its own over an embedded
PostgreSQL, fsync on; clients and appender share another. Every client follows the same conversation. "append" is the
part until the append is durable. The bare server gets the event by POST and writes it to all: no log, no database.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import aiohttp
from rich.console import Console
from rich.table import Table

from infra.embedded_postgres import embedded_postgres
from infra.postgres_event_store import PostgresEventStore
from tests.support.program import data_directory, serve
from tests.support.stream_nodes import Log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

RATES = {1: 20, 500: 2}
"""Clients, and events a second."""
AIM_P99_MS = 100
SENT_AT = re.compile(rb'"sent_ns": ?(\d+)')

BARE = """
import asyncio
from aiohttp import web
clients = set()
async def stream(request):
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(b'event: caught_up\\n\\n')
    clients.add(response)
    await asyncio.Event().wait()
async def say(request):
    data = await request.read()
    frame = b'id: 1\\nevent: user_msg\\ndata: ' + data + b'\\n\\n'
    for client in clients:
        await client.write(frame)
    return web.Response()
async def main():
    app = web.Application()
    app.router.add_get("/stream", stream)
    app.router.add_post("/say", say)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    print("http://127.0.0.1:%d" % runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


class Arrivals:
    """How long events took to come, in ms, over all clients; `complete` when as many as expected have come."""

    def __init__(self, expected: int) -> None:
        self.took: list[float] = []
        self.complete = asyncio.Event()
        self._expected = expected

    def note(self, sent_ns: list[bytes]) -> None:
        """Take in when events were sent that have come now."""
        now = time.monotonic_ns()
        self.took += [(now - int(sent)) / 1e6 for sent in sent_ns]
        if len(self.took) >= self._expected:
            self.complete.set()


class Client(asyncio.Protocol):
    """A client that follows a stream."""

    def __init__(self, path: str, arrivals: Arrivals) -> None:
        self._request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        self._arrivals = arrivals
        self._rest = b""
        self.caught_up = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the stream."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Take events in."""
        whole, end, rest = (self._rest + data).rpartition(b"\n\n")
        self._rest = rest
        if end:
            self._arrivals.note(SENT_AT.findall(whole))
            if b"event: caught_up" in whole:
                self.caught_up.set()


class Measured(NamedTuple):
    """Milliseconds: of each event at each client, and of each append."""

    delivered: list[float]
    appended: list[float]


async def measure(
    url: str, say: Callable[[int], Awaitable[object]], *, clients: int, rate: int, events: int
) -> Measured:
    """Let clients follow `url` while `say(now)` appends so many events a second; wait until all have come."""
    arrivals = Arrivals(clients * events)
    appended: list[float] = []
    address = urlsplit(url)
    path, host, port = f"{address.path}?{address.query}", str(address.hostname), int(address.port or 0)
    transports = []
    for _ in range(clients):
        loop = asyncio.get_running_loop()
        transport, client = await loop.create_connection(lambda: Client(path, arrivals), host, port)
        transports.append(transport)
        await client.caught_up.wait()
    start = time.monotonic()
    for number in range(events):
        await asyncio.sleep(max(0.0, start + number / rate - time.monotonic()))
        sent = time.monotonic_ns()
        await say(sent)
        appended.append((time.monotonic_ns() - sent) / 1e6)
    async with asyncio.timeout(60):
        await arrivals.complete.wait()
    for transport in transports:
        transport.abort()
    return Measured(arrivals.took, appended)


@asynccontextmanager
async def bare_server() -> AsyncIterator[str]:
    """Run the bare server and yield its URL."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", BARE, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.kill()
        await process.wait()


def message(sent: int) -> dict[str, object]:
    """Make the data of a message of about 350 bytes that says when it was sent."""
    text = "word " * 50
    return {"message_id": str(sent), "content": [{"type": "text", "text": text}], "metadata": {"sent_ns": sent}}


async def main(seconds: int, home: Path) -> None:
    """Measure and print."""
    results: dict[int, tuple[Measured, Measured]] = {}
    async with (
        embedded_postgres(home) as dsn,
        serve("--port", "0", "--role", "api", data_dir=str(home), log_level="ERROR") as served,
        PostgresEventStore(dsn) as store,
        aiohttp.ClientSession() as session,
    ):
        for clients, rate in RATES.items():
            log = await Log(store, owner="local", tenant="local").start()
            url = f"{served.url}/v1/conversations/{log.id}/stream"

            async def append(sent: int, log: Log = log) -> None:
                await log.add("user_msg", **message(sent))

            await measure(url, append, clients=1, rate=50, events=50)  # warm up
            count = rate * seconds
            ours = await measure(f"{url}?after={log.seq}", append, clients=clients, rate=rate, events=count)
            async with bare_server() as bare:

                async def post(sent: int, bare: str = bare) -> None:
                    async with session.post(f"{bare}/say", data=json.dumps(message(sent))) as response:
                        await response.read()

                floor = await measure(f"{bare}/stream", post, clients=clients, rate=rate, events=count)
            results[clients] = ours, floor
    show(results, seconds)


def show(results: dict[int, tuple[Measured, Measured]], seconds: int) -> None:
    """Print the table."""
    table = Table("", "p50 ms", "p99 ms", "max ms", title=f"Append to delivery by SSE, {seconds} s each")
    ratios = []
    for clients, (ours, bare) in results.items():
        crowd = f"{clients} client{'s' if clients > 1 else ''} at {RATES[clients]}/s"
        rows = {
            f"{crowd}: delivered": ours.delivered,
            "  of it: append": ours.appended,
            "  bare server": bare.delivered,
        }
        for name, values in rows.items():
            cuts = statistics.quantiles(values, n=100, method="inclusive")
            table.add_row(name, f"{cuts[49]:.1f}", f"{cuts[98]:.1f}", f"{max(values):.1f}")
        p99, floor = (
            statistics.quantiles(values, n=100, method="inclusive")[98] for values in (ours.delivered, bare.delivered)
        )
        verdict = "reached" if p99 <= AIM_P99_MS else "missed"
        ratios.append(f"{crowd}: p99 {p99 / floor:.1f} times bare's; aim p99 ≤ {AIM_P99_MS} ms {verdict}")
    console = Console()
    console.print(table)
    console.print("\n".join(ratios))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    with data_directory() as directory:
        asyncio.run(main(5 if parser.parse_args().quick else 30, directory))
