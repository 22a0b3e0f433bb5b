"""The double as a process of its own, started, killed and started again on the same port with the same log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.support.eventstoredb.control import Control

ROOT = Path(__file__).parents[3]


class DoubleProcess:
    """``python -m tests.support.eventstoredb`` over a file; `uri` stays the same from the first start on."""

    def __init__(self, data: Path) -> None:
        self.uri, self.control = "", Control("")
        self._data, self._port = data, 0
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it and wait until it listens, a second or two."""
        arguments = ["--port", str(self._port), "--data", str(self._data)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.eventstoredb", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().split()
        assert line, f"the double ended with {self._process.wait()}"
        self.uri, self.control = line[1], Control(line[-1])
        self._port = int(self.uri.removeprefix("esdb://127.0.0.1:").partition("?")[0])

    def kill(self) -> None:
        """Kill it with SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None
