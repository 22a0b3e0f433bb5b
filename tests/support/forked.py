"""``rejoinder serve`` as processes that are forked from one that has imported everything: there in no time.

Each is a whole process as a user starts it: command line, settings, signals; only its imports are not its own.
"""

from __future__ import annotations

import array
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

ROOT = Path(__file__).parents[2]
START_S = 240.0
END_S = 60.0


@dataclass(eq=False)
class Forked:
    """A running process, and where its api listens ("" without one)."""

    pid: int
    url: str
    said: asyncio.StreamReader

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; one that has ended hears nothing."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    async def gone(self) -> None:
        """Wait until it has ended, a stopped one never does."""
        async with asyncio.timeout(END_S):
            await self.said.read()

    async def kill(self) -> None:
        """End it as a crash does."""
        self.signal(signal.SIGKILL)
        await self.gone()


class Forker:
    """The parent's other side."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line

    @asynccontextmanager
    async def serve(self, *options: str, **settings: str) -> AsyncIterator[Forked]:
        """Run ``rejoinder serve`` with these options and REJOINDER_ settings until the block ends, or it is killed."""
        readable, writable = os.pipe()
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(readable))
        environment = {f"REJOINDER_{name.upper()}": value for name, value in settings.items()}
        asked = json.dumps({"arguments": ["serve", *options], "environment": environment}).encode()
        fds = array.array("i", [writable])
        self._line.sendmsg([asked], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        os.close(writable)
        process = Forked(0, "", reader)
        try:
            async with asyncio.timeout(START_S):
                process.pid = int(await reader.readline())
                process.url = await _ready(reader)
            yield process
        finally:
            if process.pid:
                process.signal(signal.SIGCONT)
                process.signal(signal.SIGTERM)
                try:
                    await process.gone()
                except TimeoutError:
                    await process.kill()
            transport.close()


async def _ready(said: asyncio.StreamReader) -> str:
    async for line in said:
        text = line.decode().strip()
        if text.startswith("listening on "):
            return text.removeprefix("listening on ")
        if text == "ready":
            return ""
    raise AssertionError("it ended before it was ready")


@contextmanager
def running_forker() -> Iterator[Forker]:
    """Start the parent; it ends with the block."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, its:
        process = subprocess.Popen([sys.executable, "-m", "tests.support.forked"], cwd=ROOT, stdin=its.fileno())
        its.close()
        try:
            ours.settimeout(START_S)
            ours.recv(16)  # when it has imported everything
            ours.settimeout(None)
            yield Forker(ours)
        finally:
            ours.close()
            process.wait(END_S)


@pytest.fixture(scope="session")
def forker() -> Iterator[Forker]:
    """One parent for all tests of a run."""
    with running_forker() as running:
        yield running


def main() -> None:
    """Fork what is asked for until nobody is left to ask."""
    import gc

    import api.app
    import api.main
    from infra.litellm_library import close_clients, warm_litellm

    async def warm() -> None:
        await warm_litellm()
        await close_clients()

    asyncio.run(warm())
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them: their pipes tell
    line = socket.socket(fileno=0)
    line.send(b"ready")
    while True:
        asked, fds, _, _ = socket.recv_fds(line, 65536, 1)
        if not asked:
            return
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _become(api.main.run, fds[0], **json.loads(asked))
        os.close(fds[0])


def _become(
    run: Callable[[Sequence[str]], int], output: int, arguments: list[str], environment: dict[str, str]
) -> NoReturn:
    code = 1
    try:
        os.dup2(output, 1)
        os.close(output)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for name in [name for name in os.environ if name.startswith("REJOINDER_")]:
            del os.environ[name]
        os.environ.update(environment)
        print(os.getpid(), flush=True)
        code = run(arguments)
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
