"""``python -m tests.support.eventstoredb [--port N] [--data FILE] [--max-append BYTES]``: the double as a process.

Prints its connection string and the URL of its control, and serves until it is told to stop. With a file, what was
acknowledged is there again after a SIGKILL.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

from tests.support.eventstoredb.control import controlled
from tests.support.eventstoredb.double import Double
from tests.support.eventstoredb.writes import MAX_APPEND_BYTES


async def main(port: int, path: Path | None, max_append: int) -> None:
    """Serve until SIGINT or SIGTERM."""
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    async with Double(port=port, path=path, max_append=max_append) as double, controlled(double) as control:
        print(f"serving {double.uri} controlled by {control}", flush=True)
        await told.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--max-append", type=int, default=MAX_APPEND_BYTES)
    given = parser.parse_args()
    asyncio.run(main(given.port, given.data, given.max_append))
