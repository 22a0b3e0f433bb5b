"""The program `rejoinder` as a process of its own: start it, wait for what it prints, type to it, stop it."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.request import Request, urlopen

from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

ROOT = Path(__file__).parents[2]


class Ended(NamedTuple):
    """How a process ended, what it printed, and the seconds between being told to stop and its end."""

    exit_code: int
    stdout: str
    stderr: str
    took: float


class Program:
    """A running process; settings are given by their variables without the prefix, in lower case."""

    def __init__(self, *arguments: str, **settings: object) -> None:
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process; `_finish` closes it
        self._process = subprocess.Popen(
            [sys.executable, "-m", "api", *arguments],
            cwd=ROOT,
            env=environment(**settings),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )
        self._printed: list[str] = []
        self._unread: queue.Queue[str | None] = queue.Queue()  # None: it prints no more
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._finish()

    def wait_for(self, text: str, within: float = PATIENCE_S) -> str:
        """Return the next line that has this text; lines before it are passed over."""
        return self.wait_for_one((text,), within)

    def wait_for_one(self, texts: tuple[str, ...], within: float = PATIENCE_S) -> str:
        """Return the next line that has one of these texts; lines before it are passed over."""
        deadline = time.monotonic() + within
        while True:
            try:
                line = self._unread.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"none of {texts} in {self._printed} {self.stderr()}") from None
            if line is None:
                raise AssertionError(f"it ended with {self._process.wait()}: {self._printed} {self.stderr()}")
            if any(text in line for text in texts):
                return line

    def url(self) -> str:
        """Return where a server that has just been started listens."""
        return self.wait_for("listening on").split()[-1]

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def type(self, text: str) -> None:
        """Write a line to its standard input; one that has ended reads nothing."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> Ended:
        """Send a signal and wait for the end."""
        self.send(number)
        return self.end()

    def end(self) -> Ended:
        """End its input and wait for its end."""
        began = time.monotonic()
        self._close_input()
        exit_code = self._process.wait(PATIENCE_S)
        took = time.monotonic() - began
        self._reader.join()
        return Ended(exit_code, "\n".join(self._printed), self.stderr(), took)

    def stderr(self) -> str:
        """Return what it has written to standard error."""
        self._stderr.seek(0)
        return self._stderr.read()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._printed.append(line.rstrip("\n"))
            self._unread.put(self._printed[-1])
        self._unread.put(None)

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, and has not read all that was typed
            self._process.stdin.close()

    def _finish(self) -> None:
        self._close_input()
        self._process.wait(PATIENCE_S)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._stderr.close()


@dataclass(frozen=True)
class Served:
    """A running ``rejoinder serve``, its URL ("" without the api) and how long it took to be ready."""

    program: Program
    url: str
    ready_s: float

    async def kill(self) -> None:
        """End it as a crash does."""
        await asyncio.to_thread(self.program.stop, signal.SIGKILL)


@asynccontextmanager
async def serve(*options: str, **settings: object) -> AsyncIterator[Served]:
    """Run ``rejoinder serve``, while the event loop runs, until the block ends or it is killed."""
    started = time.monotonic()
    program = Program("serve", *options, **settings)
    try:
        line = await asyncio.to_thread(program.wait_for_one, ("listening on ", "ready"))
        url = line.removeprefix("listening on ") if line != "ready" else ""
        yield Served(program, url, time.monotonic() - started)
    finally:
        await asyncio.to_thread(program.__exit__)


def run(*arguments: str, typed: str = "", **settings: object) -> Ended:
    """Run a command to its end with this input."""
    with Program(*arguments, **settings) as program:
        for line in typed.splitlines():
            program.type(line)
        return program.end()


def fetched(url: str, body: Any = None) -> Any:
    """Return the JSON that a server answers, to a body if there is one."""
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, {"Content-Type": "application/json"}), timeout=PATIENCE_S) as answer:
        return json.load(answer)


def environment(**settings: object) -> dict[str, str]:
    """Return this process's environment with these settings and no others."""
    given = {f"REJOINDER_{name.upper()}": str(value) for name, value in settings.items()}
    return {name: value for name, value in os.environ.items() if not name.startswith("REJOINDER_")} | given


@contextmanager
def held_port() -> Iterator[int]:
    """Lend a port on which programs may listen, one after the other; between them nobody else gets it."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        _, port = holder.getsockname()
        if sys.platform != "linux":  # there one that is bound, though nobody listens, keeps everybody out
            holder.close()
        yield port


@contextmanager
def data_directory() -> Iterator[Path]:
    """Lend a directory that the account of root's embedded server can reach too."""
    directory = Path(tempfile.mkdtemp(prefix="rejoinder-tests-")).resolve()
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
