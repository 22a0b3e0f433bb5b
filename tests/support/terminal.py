"""The program `rejoinder` on a terminal: keys that are typed, and what is shown, whatever was drawn when and where."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyte

from tests.support.program import ROOT, environment
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROWS, COLUMNS = 50, 160
SIZE = {"LINES": str(ROWS), "COLUMNS": str(COLUMNS)}
AS_ITS_TERMINAL = """
import os, sys
os.login_tty(0)  # so that Ctrl-C is a signal
os.execv(sys.executable, [sys.executable, "-m", "api", *sys.argv[1:]])
"""


class Terminal:
    """The other side of a pseudo-terminal."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor, self._process = descriptor, process
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def lines(self) -> list[str]:
        """What it shows, without the space beside and below it."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip().splitlines()

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._descriptor, keys.encode())

    def wait_for(self, *texts: str) -> None:
        """Wait until it shows all of these texts."""
        self.wait_until(lambda lines: all(text in "\n".join(lines) for text in texts))

    def wait_until(self, holds: Callable[[list[str]], bool]) -> None:
        """Wait until something holds of the lines that it shows."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds(lines := self.lines):
            assert select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))[0], lines
            assert self._read(), lines

    def ended(self) -> int:
        """Wait for the end of the program and return its exit code."""
        while self._read():
            pass
        return self._process.wait(PATIENCE_S)

    def _read(self) -> bool:
        """Take in what is drawn next; False when the program has ended."""
        try:
            drawn = os.read(self._descriptor, 65_536)
        except OSError:  # how a terminal says on Linux that nobody writes to it any more
            return False
        self._stream.feed(drawn)
        return bool(drawn)


@contextmanager
def on_terminal(*arguments: str) -> Iterator[Terminal]:
    """Run a command on a terminal of its own; it ends with the block."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", AS_ITS_TERMINAL, *arguments],
        cwd=ROOT,
        env=environment() | SIZE | {"TERM": "xterm-256color", "NO_COLOR": "1"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    try:
        os.close(theirs)
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
