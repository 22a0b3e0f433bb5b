"""Lines that a person types, or that a pipe brings."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

try:
    import readline
except ImportError:  # a Python without it: lines are edited as the terminal does
    readline = None  # type: ignore[assignment]  # looked at before each use

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

CHUNK = 65536


class TypedLines:
    """Standard input, read a line at a time and only when asked, so that each line answers what was asked."""

    def __init__(self) -> None:
        self.interactive = sys.stdin.isatty() and sys.stdout.isatty()
        self._piped = _lines_of(sys.stdin.fileno())

    async def next(self, prompt: str, prefill: str = "") -> str | None:
        """Return the next line, None at the end; a terminal shows the prompt, and `prefill` to be edited."""
        loop = asyncio.get_running_loop()
        line: asyncio.Future[str | None] = loop.create_future()

        def read() -> None:
            typed = _typed(prompt, prefill) if self.interactive else next(self._piped, None)
            with suppress(RuntimeError):  # the loop is closed: the program ends without this line
                loop.call_soon_threadsafe(lambda: None if line.done() else line.set_result(typed))

        # no thread of the loop's, for whose end it would wait: perhaps nobody ever types
        threading.Thread(target=read, daemon=True).start()
        return await line

    @staticmethod
    def typed_so_far() -> str:
        """Return what is on the terminal of the line that is being typed."""
        return readline.get_line_buffer() if readline else ""

    @contextmanager
    def editing(self) -> Iterator[None]:
        """Leave the terminal as it was found, also when a line is left half typed."""
        if not self.interactive:
            yield
            return
        import termios

        found = termios.tcgetattr(sys.stdin)
        try:
            yield
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, found)


def _typed(prompt: str, prefill: str) -> str | None:
    if readline:
        readline.set_startup_hook(lambda: readline.insert_text(prefill))
    try:
        return input(prompt)
    except EOFError:
        return None


def _lines_of(descriptor: int) -> Generator[str, None, None]:
    """Read below Python's buffers: a thread that waits in one keeps the program from ending."""
    waiting = b""
    while chunk := os.read(descriptor, CHUNK):
        *lines, waiting = (waiting + chunk).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace").removesuffix("\r")
    if waiting:
        yield waiting.decode(errors="replace")
