"""The parent of all victims: it has imported everything, opened nothing, and forks a process in milliseconds.

It reads a line of JSON for each process to be forked, and it and its children write lines of JSON to the same pipe:
each is small enough to be written whole, and what was written stays there when the writer is killed.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import select
import signal
import time
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from infra.litellm_library import close_clients, warm_litellm
from tests.crash.matrix.boundaries import Boundaries
from tests.crash.matrix.composition import Part, composed
from tests.crash.matrix.stores import StoreAddress

if TYPE_CHECKING:
    from tests.crash.matrix.boundaries import Note

COMMANDS, NOTES = 0, 1


def main() -> None:
    """Fork what is asked for until the other end of the pipe is closed; then end all children."""
    asyncio.run(_warm())
    gc.collect()
    gc.freeze()
    readable, written = os.pipe()
    os.set_blocking(written, False)
    signal.set_wakeup_fd(written)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _write(ready=True)
    children: dict[int, int] = {}
    asked = b""
    while True:
        ready, _, _ = select.select([COMMANDS, readable], [], [])
        if readable in ready:
            os.read(readable, 4096)
            _reap(children)
        if COMMANDS in ready:
            received = os.read(COMMANDS, 65536)
            if not received:
                break
            *lines, asked = (asked + received).split(b"\n")
            for line in lines:
                command = json.loads(line)
                pid = os.fork()
                if not pid:
                    _live(command)
                children[pid] = command["number"]
                _write(number=command["number"], pid=pid)
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _reap(children: dict[int, int]) -> None:
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            _write(number=children.pop(pid), ended=os.waitstatus_to_exitcode(status))


def _live(command: dict[str, Any]) -> NoReturn:
    """Be a victim; never returns into the parent's loop."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), COMMANDS)
        note = partial(_write, number=command["number"])
        logging.basicConfig(level=logging.INFO, handlers=[_Noted(note)], force=True)
        asyncio.run(_run(_part_of(command["part"]), Boundaries(note, command["kill_at"])))
    except BaseException:
        _write(number=command["number"], broken=traceback.format_exc()[-2000:])
    finally:
        os._exit(1)


async def _run(part: Part, boundaries: Boundaries) -> None:
    async with composed(part, boundaries) as url:
        boundaries.note(url=url)
        await asyncio.Event().wait()


def _part_of(given: dict[str, Any]) -> Part:
    return Part(**{**given, "roles": tuple(given["roles"]), "store": StoreAddress(**given["store"])})


def _write(**said: Any) -> None:
    line = json.dumps({**said, "t": time.monotonic()}).encode() + b"\n"
    assert len(line) <= select.PIPE_BUF, "a longer line would not be written whole"
    os.write(NOTES, line)


async def _warm() -> None:
    await warm_litellm()
    await close_clients()


class _Noted(logging.Handler):
    """What a victim logs, among its notes."""

    def __init__(self, note: Note) -> None:
        super().__init__()
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        raised = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
        self._note(log=f"{record.levelname} {record.name}: {record.getMessage()[:300]} {raised[-1000:]}")


if __name__ == "__main__":
    main()
