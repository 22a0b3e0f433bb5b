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
import sys
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from psycopg.conninfo import make_conninfo

from infra.postgres_cluster import ROLE, Cluster, EmbeddedPostgresError, locate_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
TEND_INTERVAL_S = 0.1
FAILED_STARTS = 6
"""So many in a row (three seconds) are more than the wait for the last connections of a server that was killed."""
MAX_LOG_BYTES = 1024 * 1024

SETTINGS = {
    "listen_addresses": "",
    "port": "5432",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # the log must not repeat what people said: no statements, no details with values
    "log_min_messages": "log",
    "log_checkpoints": "off",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}

# Becomes the server. Linux: it asks for SIGINT when its parent dies (the request would not survive the change of user,
# and a preexec_fn in a process with threads may deadlock, hence a small program between us and the server).
LAUNCH = """
import ctypes, os, signal, sys
parent, uid, gid, *command = sys.argv[1:]
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(int(gid))
    os.setuid(int(uid))
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGINT)
    if os.getppid() != int(parent):
        sys.exit("the parent is gone")
os.execv(command[0], command)
"""


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
        self._cluster = locate_cluster(self._data_dir)
        deadline = time.monotonic() + START_TIMEOUT_S
        try:
            while not self.tend():
                if self._failed_starts >= FAILED_STARTS or time.monotonic() > deadline:
                    home = self._cluster.home
                    raise EmbeddedPostgresError(f"PostgreSQL does not start in {home}: {self._last_words()}")
                time.sleep(0.005)
        except BaseException:
            self.stop()
            raise
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
        pid, _ = _pid_file(cluster)
        if pid and _is_postmaster(pid, cluster):
            # the server of an owner that died: it is stopping (Linux) or has to be told
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
            return
        if pid and _lives(pid):
            # another process has the number of a server that was killed: PostgreSQL would take it for that server
            (cluster.data / "postmaster.pid").unlink()
        settings = SETTINGS | {"unix_socket_directories": str(cluster.socket_dir)}
        command = [str(cluster.binaries / "postgres"), "-D", str(cluster.data)]
        command += [f"--{name}={value}" for name, value in settings.items()]
        launcher = [sys.executable, "-I", "-S", "-c", LAUNCH]
        account = [str(os.getpid()), str(cluster.user.pw_uid), str(cluster.user.pw_gid)]
        environment = {k: v for k, v in os.environ.items() if k == "LD_LIBRARY_PATH"} | {"LC_ALL": "C"}
        too_long = cluster.log.exists() and cluster.log.stat().st_size > MAX_LOG_BYTES
        with cluster.log.open("wb" if too_long else "ab") as log:
            self._child = subprocess.Popen(
                launcher + account + command,
                cwd="/",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C in the terminal is for us: the server stops after us
            )

    def _is_ready(self, cluster: Cluster) -> bool:
        pid, status = _pid_file(cluster)
        if status != "ready":
            return False
        if self._lock is not None:
            return self._child is not None and pid == self._child.pid
        return _is_postmaster(pid, cluster)

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
    dsn = server.start()
    keeper = asyncio.create_task(_keep(server), name="embedded-postgres")
    try:
        yield dsn
    finally:
        keeper.cancel()
        with suppress(asyncio.CancelledError):
            await keeper
        server.stop()


async def _keep(server: EmbeddedPostgres) -> None:
    while True:
        await asyncio.sleep(TEND_INTERVAL_S)
        try:
            server.tend()
        except (OSError, EmbeddedPostgresError):
            logger.exception("the embedded PostgreSQL cannot be started again", extra={"action": "database_failed"})


def _pid_file(cluster: Cluster) -> tuple[int, str]:
    """Return the process and the status that the server's pid file names; (0, "") without one, or one half-written."""
    try:
        lines = (cluster.data / "postmaster.pid").read_text().splitlines()
        return int(lines[0]), lines[7].strip()
    except (FileNotFoundError, IndexError, ValueError):
        return 0, ""


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it lives, as somebody else
        pass
    return True


def _is_postmaster(pid: int, cluster: Cluster) -> bool:
    """Say whether that process lives and is the server of this cluster, not one that got its number later."""
    if sys.platform == "linux":
        with suppress(OSError):
            return os.fsencode(cluster.data) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return False
    found = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return f"-D {cluster.data} " in found.stdout
