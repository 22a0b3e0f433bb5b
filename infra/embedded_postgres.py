"""The embedded PostgreSQL server: started as a child, kept alive, shared by all processes of one data directory.

Who holds the lock file is the owner: the server is its child and ends with it. The others are guests and use the
owner's server; when the owner ends, the lock falls to one of them, and it starts the server again.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import subprocess
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from psycopg.conninfo import make_conninfo

from infra import postmaster
from infra.postgres_cluster import ROLE, Cluster, EmbeddedPostgresError, locate_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 5.0
TEND_INTERVAL_S = 0.2
FAILED_STARTS = 9
"""So many in a row (over nine seconds) are more than the wait for the last connections of a server that was killed."""


class EmbeddedPostgres:
    """One process's hold on the server of a data directory; blocking, with `tend` to be called again and again.

    Start it from a thread that lives as long as the server shall: on Linux the server ends with that thread.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._cluster: Cluster | None = None
        self._lock: int | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._failed_starts = 0
        self._not_before = 0.0

    def start(self) -> str:
        """Start the server, or find it running, and return its connection string (a superuser, peer authentication).

        Raises `EmbeddedPostgresError`.
        """
        try:
            for pause_s in self.starting():
                time.sleep(pause_s)
        except BaseException:
            self.stop()
            raise
        return self.dsn

    def starting(self) -> Iterator[float]:
        """Do what `start` does, giving the pauses, in seconds, that the caller makes; `stop` if it comes to nothing."""
        deadline = time.monotonic() + START_TIMEOUT_S
        try:
            self._cluster = locate_cluster(self._data_dir)
            while not self.tend():
                if self._failed_starts >= FAILED_STARTS or time.monotonic() > deadline:
                    raise EmbeddedPostgresError(f"PostgreSQL does not start: {self._last_words()}")
                yield 0.005
        except OSError as exc:
            raise EmbeddedPostgresError(f"PostgreSQL does not start in {self._data_dir}: {exc}") from exc

    @property
    def dsn(self) -> str:
        """The connection string of the started server; the same after every restart."""
        assert self._cluster is not None, "start() comes first"
        return make_conninfo(host=str(self._cluster.socket_dir), port=5432, user=ROLE, dbname="postgres")

    def tend(self) -> bool:
        """Do what the server needs now: reap it, take it over, start it again. True when it takes connections."""
        assert self._cluster is not None, "start() comes first"
        if self._child is not None and self._child.poll() is not None:
            self._failed_starts += 1
            self._not_before = time.monotonic() + min(0.05 * 2**self._failed_starts, 2.0)
            logger.warning("PostgreSQL ended, starting it again", extra={"action": "database_ended"})
            self._child = None
        if self._child is None and time.monotonic() >= self._not_before and self._own():
            self._launch(self._cluster)
        ready = self._is_ready(self._cluster)
        if ready:
            self._failed_starts = 0
        return ready

    def stop(self) -> None:
        """Stop the server if it is ours, and let go of the data directory; guests start it again for themselves."""
        if self._child is not None:
            self._child.send_signal(signal.SIGINT)
            try:
                self._child.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._child.send_signal(signal.SIGQUIT)
                self._child.wait()
            self._child = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _own(self) -> bool:
        assert self._cluster is not None
        if self._lock is None:
            self._cluster.home.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._cluster.home / "postgres.lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                return False
            self._lock = lock
        return True

    def _launch(self, cluster: Cluster) -> None:
        cluster.initialise()
        pid, _ = postmaster.announced(cluster)
        if pid and postmaster.runs(pid, cluster):
            # the server of an owner that died: it is stopping (Linux) or has to be told
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
        else:
            self._child = postmaster.launch(cluster)

    def _is_ready(self, cluster: Cluster) -> bool:
        pid, status = postmaster.announced(cluster)
        if status != "ready":
            return False
        if self._lock is not None:
            return self._child is not None and pid == self._child.pid
        return postmaster.runs(pid, cluster)

    def _last_words(self) -> str:
        assert self._cluster is not None
        if not self._cluster.log.exists():
            return "another process holds its lock, and its server does not come up"
        lines = [line.partition("] ")[2] for line in self._cluster.log.read_text(errors="replace").splitlines()]
        return " ".join(dict.fromkeys(line for line in lines[-4:] if line)) or "it says nothing"


@asynccontextmanager
async def embedded_postgres(data_dir: Path) -> AsyncIterator[str]:
    """Run the server of a data directory, or share the running one, and keep it alive; gives the connection string."""
    server = EmbeddedPostgres(data_dir)
    try:
        for pause_s in server.starting():
            await asyncio.sleep(pause_s)
        keeper = asyncio.create_task(_keep(server), name="embedded-postgres")
        try:
            yield server.dsn
        finally:
            keeper.cancel()
            with suppress(asyncio.CancelledError):
                await keeper
    finally:
        server.stop()


async def _keep(server: EmbeddedPostgres) -> None:
    while True:
        await asyncio.sleep(TEND_INTERVAL_S)
        try:
            server.tend()
        except (OSError, EmbeddedPostgresError):
            logger.exception("the embedded PostgreSQL cannot be started again", extra={"action": "database_failed"})
