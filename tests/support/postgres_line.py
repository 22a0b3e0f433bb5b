"""A line to PostgreSQL that a test can silence: nobody is hung up on, nothing comes through any more."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from commands.agent.stopping import stop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

SOCKET = ".s.PGSQL.5432"


@dataclass(eq=False)
class Call:
    """One connection through the line."""

    flows: asyncio.Event = field(default_factory=asyncio.Event)
    listens: bool = False

    def heard(self, said: bytes) -> None:
        """Notice what kind of connection it is."""
        self.listens = self.listens or b"listen " in said


class Line:
    """A relay in front of a server's unix socket; `dsn` leads through it."""

    def __init__(self, dsn: str, directory: Path) -> None:
        self._server = str(Path(str(conninfo_to_dict(dsn)["host"])) / SOCKET)
        self.dsn = make_conninfo(dsn, host=str(directory))
        self.calls: set[Call] = set()
        self._relays: set[asyncio.Task[None]] = set()

    def silence(self, which: Callable[[Call], bool] = lambda call: True) -> int:
        """Let nothing through on the connections that there are; new ones work. Returns how many fell silent."""
        silent = [call for call in self.calls if which(call)]
        for call in silent:
            call.flows.clear()
        return len(silent)

    def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection."""
        relay = asyncio.create_task(self._relay(reader, writer))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)

    async def close(self) -> None:
        """Cut all connections."""
        await stop(self._relays)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = Call()
        call.flows.set()
        self.calls.add(call)
        try:
            to_server, from_server = await asyncio.open_unix_connection(self._server)
            try:
                ends = [
                    asyncio.create_task(_pump(reader, from_server, call, call.heard)),
                    asyncio.create_task(_pump(to_server, writer, call, lambda said: None)),
                ]
                try:
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    await stop(ends)
            finally:
                from_server.close()
        finally:
            self.calls.discard(call)
            writer.close()


async def _pump(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, call: Call, heard: Callable[[bytes], None]
) -> None:
    with suppress(ConnectionError):
        while said := await source.read(65536):
            heard(said)
            await call.flows.wait()
            sink.write(said)
            await sink.drain()


@asynccontextmanager
async def line_to(dsn: str) -> AsyncIterator[Line]:
    """Lay a line to a server that listens on a unix socket."""
    directory = Path(tempfile.mkdtemp(prefix="rejoinder-line-"))
    line = Line(dsn, directory)
    server = await asyncio.start_unix_server(line.answer, directory / SOCKET)
    try:
        yield line
    finally:
        server.close()
        await line.close()
        shutil.rmtree(directory)
