"""How fast `serve` is ready and how much memory an idle API process holds, beside a bare aiohttp server, in one run.

``python -m tests.benchmarks.bench_start [--quick]``. "first start" makes the database cluster, "warm start" finds it.
The bare server is an aiohttp application with one route in a Python process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.support.program import data_directory, serve

BARE = """
import asyncio
from aiohttp import web
async def main():
    runner = web.AppRunner(web.Application()); await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print("listening", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process (Linux)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


async def bare() -> tuple[float, float]:
    """Return seconds until a bare server listens, and its memory."""
    started = time.monotonic()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", BARE, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    took = time.monotonic() - started
    memory = resident_mb(process.pid)
    process.kill()
    await process.wait()
    return took, memory


async def main(runs: int) -> None:
    """Measure and print."""
    first, warm, memory, bare_took, bare_memory = [], [], [], [], []
    for _ in range(runs):
        with data_directory() as home:
            async with serve("--port", "0", data_dir=home) as served:
                first.append(served.ready_s)
            async with serve("--port", "0", data_dir=home) as served:
                warm.append(served.ready_s)
                async with serve("--port", "0", "--role", "api", data_dir=home) as only_api:
                    await asyncio.sleep(2)
                    memory.append(resident_mb(only_api.program.pid))
        took, resident = await bare()
        bare_took.append(took)
        bare_memory.append(resident)
    table = Table("", "median", "aim", "× bare aiohttp", title=f"Start and memory, {runs} runs")
    base, base_mb = statistics.median(bare_took), statistics.median(bare_memory)
    for name, values, aim in (("first start, s", first, "≤ 4"), ("warm start, s", warm, "≤ 2")):
        table.add_row(name, f"{statistics.median(values):.2f}", aim, f"{statistics.median(values) / base:.1f}")
    idle = statistics.median(memory)
    table.add_row("idle API process, MB", f"{idle:.0f}", "≤ 120", f"{idle / base_mb:.1f}")
    Console().print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    asyncio.run(main(1 if parser.parse_args().quick else 5))
