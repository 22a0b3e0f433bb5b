"""From ``POST …/messages`` to the model server having the request, beside a bare LiteLLM call, in one run.

``python -m tests.benchmarks.bench_turn [--quick]``. `serve` is a process of its own with an embedded PostgreSQL; the
model server is on loopback; conversations have up to 20 messages; LiteLLM is warm, nothing else runs. "LiteLLM" is a
call of the adapter with the same messages until the same server has it: the rest is ours (HTTP, two appends, wake-up,
claim, load).
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

import aiohttp
from rich.console import Console
from rich.table import Table

from commands.agent.model import ModelRequest
from infra.litellm_model import LiteLLMModel
from tests.support.model_server import ModelServer, serving
from tests.support.program import data_directory, serve

TURNS_EACH = 10
WARM_UP = 20


async def whole(model: ModelServer, url: str, turns: int) -> tuple[list[float], list[ModelRequest]]:
    """Return the seconds from each POST to its request's arrival, and the requests."""
    took: list[float] = []
    requests: list[ModelRequest] = []
    path = ""
    async with aiohttp.ClientSession() as session:
        for turn in range(turns + WARM_UP):
            if turn % TURNS_EACH == 0:
                async with session.post(f"{url}/v1/conversations", json={}) as response:
                    path = f"{url}{response.headers['Location']}"
            model.received.clear()
            posted_at = time.monotonic()
            said = {"content": f"message {turn} " + "word " * 30}
            async with session.post(f"{path}/messages", json=said) as response:
                seq = (await response.json())["seq"]
            (received, *_) = await model.requests(1)
            if turn >= WARM_UP:
                took.append(received.arrived_at - posted_at)
                body = received.body
                requests.append(ModelRequest(f"openai/{body['model']}", body["messages"], body.get("tools", ())))
            await _turn_ended(session, path, seq)
            await asyncio.sleep(0.02)
    return took, requests


async def _turn_ended(session: aiohttp.ClientSession, path: str, after: int) -> None:
    async with session.get(f"{path}/stream?after={after}") as response:
        async for line in response.content:
            if line.startswith(b"event: turn_ended"):
                return


async def bare(model: ModelServer, requests: list[ModelRequest]) -> list[float]:
    """Return the seconds from a call of the adapter to its request's arrival."""
    adapter = LiteLLMModel(api_base=model.url, api_key="sk-bench")
    await adapter.warm()
    took = []
    try:
        for request in [*requests[:WARM_UP], *requests]:
            model.received.clear()
            called_at = time.monotonic()
            async for _ in adapter.stream(request):
                pass
            took.append(model.received[0].arrived_at - called_at)
            await asyncio.sleep(0.02)
    finally:
        await adapter.close()
    return took[WARM_UP:]


def percentile(values: list[float], percent: int) -> float:
    """Return a percentile in milliseconds."""
    return statistics.quantiles(values, n=100)[percent - 1] * 1000


async def main(turns: int) -> None:
    """Measure and print."""
    with data_directory() as home:
        async with (
            serving() as model,
            serve(
                *("--port", "0"),
                data_dir=home,
                model="openai/bench",
                model_api_base=model.url,
                model_api_key="sk-bench",
                log_level="ERROR",
            ) as served,
        ):
            await asyncio.sleep(10)  # until LiteLLM is warm
            total, requests = await whole(model, served.url, turns)
            litellm = await bare(model, requests)
    table = Table("", "p50 ms", "p99 ms", title=f"POST to model request, {turns} turns, idle")
    for name, values in (("whole", total), ("LiteLLM alone", litellm)):
        table.add_row(name, f"{percentile(values, 50):.1f}", f"{percentile(values, 99):.1f}")
    ours = percentile(total, 50) - percentile(litellm, 50)
    table.add_row("ours", f"{ours:.1f}", "")
    console = Console()
    console.print(table)
    console.print(
        f"whole / LiteLLM alone: {percentile(total, 50) / percentile(litellm, 50):.2f} (aims: whole p50 ≤ 15 ms, "
        "p99 ≤ 50 ms; ours p50 ≤ 8 ms)"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    asyncio.run(main(40 if parser.parse_args().quick else 300))
