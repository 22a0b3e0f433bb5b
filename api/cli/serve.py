"""`serve`: run the server, or some of its roles, until told to stop."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import threading
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.failures import WRONG_USAGE, CommandFailed
from api.cli.job import Job

if TYPE_CHECKING:
    from collections.abc import Collection

    from infra.settings import Settings

logger = logging.getLogger(__name__)

LONGEST_STOP_S = 9.5
"""After so long the process ends whatever hangs: the log is the truth, and others go on from it."""
ADDRESS_ERRORS = {errno.EADDRINUSE: "is taken", errno.EADDRNOTAVAIL: "is not this machine's"}

Host = Annotated[str | None, typer.Option(help="Address to listen on, else REJOINDER_HOST or 127.0.0.1.")]
Port = Annotated[int | None, typer.Option(help="Port, 0 for any free one, else REJOINDER_PORT or 8400.")]
Role = Annotated[str, typer.Option(help="all, or a comma list of api, projector and worker.")]


def serve(host: Host = None, port: Port = None, role: Role = "all") -> Job:
    """Run the server: HTTP API, projector and worker, or some of these roles.

    The settings come from REJOINDER_* variables (see `rejoinder config`).
    Ctrl-C or SIGTERM stops it in good order within 10 seconds, a second
    Ctrl-C at once.
    """
    return Job(partial(_serve, given_roles=role), overrides={"host": host, "port": port}, serves=True)


async def _serve(settings: Settings, given_roles: str) -> int:
    signals = _Signals()
    from api.app import ROLES, running

    roles = _roles(given_roles, ROLES)
    try:
        if "api" in roles:
            _try_address(settings.host, settings.port)
        async with running(settings, roles) as url:
            print(f"listening on {url}\nweb page: {url}/" if url else "ready", flush=True)
            await signals.wait()
            print("stopping (at once: Ctrl-C)", flush=True)
    except asyncio.CancelledError:
        if not signals.received:
            raise
    except OSError as error:
        reason = "is not known" if isinstance(error, socket.gaierror) else ADDRESS_ERRORS.get(error.errno or 0)
        if reason is None:
            raise
        raise CommandFailed(
            f"the address {settings.host}:{settings.port} {reason}: choose another one by --host and --port "
            "(REJOINDER_HOST, REJOINDER_PORT), or stop the program that listens there"
        ) from error
    return 0


def _try_address(host: str, port: int) -> None:
    """Raise what listening will, before databases are started and conversations claimed for nothing."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))


def _roles(given: str, known: Collection[str]) -> Collection[str]:
    roles = {name.strip() for name in given.split(",")}
    if unknown := roles - {*known, "all"}:
        raise CommandFailed(
            f"there is no role {', '.join(map(repr, sorted(unknown)))}: --role takes all, or some of {','.join(known)}",
            WRONG_USAGE,
        )
    return known if "all" in roles else roles


class _Signals:
    """SIGTERM and SIGINT: the first stops in good order, also in the middle of starting; a SIGINT after it, at once."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._starting = asyncio.current_task()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._receive, number)

    @property
    def received(self) -> bool:
        """Whether a signal has come."""
        return self._asked.is_set()

    async def wait(self) -> None:
        """Return at the first signal."""
        self._starting = None
        await self._asked.wait()

    def _receive(self, number: int) -> None:
        if self.received:
            if number == signal.SIGINT:
                os._exit(128 + number)
            return
        self._asked.set()
        watchdog = threading.Timer(LONGEST_STOP_S, _give_up)
        watchdog.daemon = True
        watchdog.start()
        if self._starting is not None:
            self._starting.cancel()


def _give_up() -> None:
    logger.warning("something did not stop in time, ending without it", extra={"action": "stop_forced"})
    os._exit(1)
