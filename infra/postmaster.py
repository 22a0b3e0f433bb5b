"""The server process of a cluster: launched as a child that ends with its parent, recognised by its pid file."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infra.postgres_cluster import Cluster

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


def launch(cluster: Cluster) -> subprocess.Popen[bytes]:
    """Start the server as a child of this process, on Linux also of this thread: it ends with it."""
    pid, _ = announced(cluster)
    if pid and _lives(pid):
        # another process has the number of a server that was killed: PostgreSQL would take it for that server
        (cluster.data / "postmaster.pid").unlink()
    settings = SETTINGS | {"unix_socket_directories": str(cluster.socket_dir)}
    command = [str(cluster.binaries / "postgres"), "-D", str(cluster.data)]
    command += [f"--{name}={value}" for name, value in settings.items()]
    launcher = [sys.executable, "-I", "-S", "-c", LAUNCH]
    account = [str(os.getpid()), str(cluster.user.pw_uid), str(cluster.user.pw_gid)]
    environment = {"LC_ALL": "C", "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
    too_long = cluster.log.exists() and cluster.log.stat().st_size > MAX_LOG_BYTES
    with cluster.log.open("wb" if too_long else "ab") as log:
        return subprocess.Popen(
            launcher + account + command,
            cwd="/",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # a Ctrl-C in the terminal is for us: the server stops after us
        )


def announced(cluster: Cluster) -> tuple[int, str]:
    """Return the process and the status that the server's pid file names; (0, "") without one, or one half-written."""
    try:
        lines = (cluster.data / "postmaster.pid").read_text().splitlines()
        return int(lines[0]), lines[7].strip()
    except (FileNotFoundError, IndexError, ValueError):
        return 0, ""


def runs(pid: int, cluster: Cluster) -> bool:
    """Say whether that process lives and is the server of this cluster, not one that got its number later."""
    if sys.platform == "linux":
        with suppress(OSError):
            return os.fsencode(cluster.data) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return False
    found = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return f"-D {cluster.data} " in found.stdout


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it lives, as somebody else
        pass
    return True
