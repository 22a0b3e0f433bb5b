"""How late deadlines act: from `expires_at` until a client's stream has the expiry, idle and under load, in one run.

``python -m tests.benchmarks.bench_deadlines [--quick]``. `serve` runs all roles in one process with an embedded
PostgreSQL; the model server is on loopback. "loaded": as many replies are being streamed, a token every 200 ms, as the
worker has slots (64), so that none is free. "burst": the same, and all deadlines are at one moment.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from rich.console import Console
from rich.table import Table

from tests.support.model_script import Rule, Step, call, calls, says
from tests.support.model_server import ModelServer, serving
from tests.support.program import data_directory, serve

SLOTS = 64
TOKEN_EVERY_S = 0.2
FIRST_AFTER_S = 10.0


class Client:
    """Somebody who asks for what has to be approved, and never answers."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url, self._session = url, session

    async def start(self, text: str) -> str:
        """Begin a conversation; returns its path."""
        body = {"settings": {"approval_timeout_s": 0}, "message": {"content": text}}
        async with self._session.post(f"{self._url}/v1/conversations", json=body) as response:
            response.raise_for_status()
            return urlsplit(response.headers["Location"]).path

    async def parked(self) -> tuple[str, str]:
        """Begin a conversation that waits for an approval; returns its path and the call's id."""
        path = await self.start("email")
        suspension = await self.next(path, "suspension")
        return path, suspension["data"]["tool_call_id"]

    async def next(self, path: str, event_type: str, after: int = 0) -> dict[str, Any]:
        """Wait for an event of a type."""
        async with self._session.get(f"{self._url}{path}/stream?after={after}") as response:
            async for line in response.content:
                if line.startswith(b"data: ") and b'"seq"' in line:
                    event: dict[str, Any] = json.loads(line[6:])
                    if event.get("type") == event_type:
                        return event
        raise AssertionError(f"{path} ended without {event_type}")

    async def lateness(self, path: str, tool_call_id: str, expires_at: datetime) -> float:
        """Set the deadline, and return the seconds from then until its expiry was received."""
        body = {"expires_at": expires_at.isoformat()}
        async with self._session.patch(f"{self._url}{path}/tool-calls/{tool_call_id}", json=body) as response:
            response.raise_for_status()
            seq = (await response.json())["seq"]
        await self.next(path, "resolution", seq)
        return time.time() - expires_at.timestamp()


async def lateness(client: Client, count: int, spread_s: float) -> list[float]:
    """Return how late so many deadlines were, spread over some seconds."""
    parked = await asyncio.gather(*(client.parked() for _ in range(count)))
    first = datetime.now(UTC) + timedelta(seconds=FIRST_AFTER_S)
    deadlines = [first + timedelta(seconds=random.random() * spread_s) for _ in parked]
    return await asyncio.gather(
        *(client.lateness(*one, deadline) for one, deadline in zip(parked, deadlines, strict=True))
    )


async def main(count: int) -> None:
    """Measure and print."""
    idle_s, loaded_s = count / 4, count / 20  # after an expiry a turn goes on: that shall be over before the next
    with data_directory() as home:
        async with serving() as model, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            _script(model)
            async with serve(
                *("--port", "0"),
                data_dir=home,
                model="openai/bench",
                model_api_base=model.url,
                model_api_key="sk-bench",
                tools="tests.support.agent_tools",
                worker_concurrency=str(SLOTS),
                log_level="ERROR",
            ) as served:
                client = Client(served.url, session)
                await client.next(await client.start("warm up"), "turn_ended")
                measured = {"idle": await lateness(client, count, idle_s)}
                waiting = [await client.parked() for _ in range(2 * count)]
                asked = len(model.received)
                talking = [await client.start("speak") for _ in range(SLOTS)]
                await model.requests(asked + SLOTS, timeout_s=60)
                for name, some, spread in (("loaded", waiting[:count], loaded_s), ("burst", waiting[count:], 0.0)):
                    first = datetime.now(UTC) + timedelta(seconds=FIRST_AFTER_S)
                    measured[name] = await asyncio.gather(
                        *(client.lateness(*one, first + timedelta(seconds=random.random() * spread)) for one in some)
                    )
                assert len(model.received) == asked + SLOTS, "a slot was free"
                for path in talking:
                    async with session.post(f"{served.url}{path}/cancel", json={}) as response:
                        response.raise_for_status()
    table = Table("", "p50 ms", "p90 ms", "p99 ms", "latest ms", title=f"lateness of {count} deadlines each")
    for name, values in measured.items():
        percentiles = statistics.quantiles(values, n=100)
        table.add_row(name, *(f"{percentiles[p - 1] * 1000:.0f}" for p in (50, 90, 99)), f"{max(values) * 1000:.0f}")
    console = Console()
    console.print(table)
    console.print("aims: idle ≤ 250 ms, loaded ≤ 1,000 ms")


def _script(model: ModelServer) -> None:
    # no two alike: LiteLLM gives up a stream that repeats itself
    tokens = [step for n in range(2_000) for step in (Step(delta={"content": f"{n} "}), Step(pause_s=TOKEN_EVERY_S))]
    email = call("send_email", {"to": "ada@example.org", "body": "hi"})
    model.rule(
        Rule(answer=says(calls(email)), last_text="^email$"),
        Rule(answer=says(*tokens), last_text="^speak$"),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    asyncio.run(main(40 if parser.parse_args().quick else 200))
