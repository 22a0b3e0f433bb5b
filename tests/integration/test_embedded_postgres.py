"""The embedded server: where it lives, who shares it, and how it comes back."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from infra import postgres_cluster
from infra.embedded_postgres import EmbeddedPostgres, embedded_postgres
from infra.postgres_cluster import Cluster, EmbeddedPostgresError, locate_cluster
from infra.postmaster import announced
from tests.support.postgres import postmaster
from tests.support.program import data_directory
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROCESS = """
import asyncio, sys
from pathlib import Path
from infra.embedded_postgres import embedded_postgres

async def main():
    async with embedded_postgres(Path(sys.argv[1])) as dsn:
        print(dsn, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@dataclass(frozen=True)
class Running:
    """A server that runs, and where it does."""

    dsn: str
    cluster: Cluster


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root hands its server to another user")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that every user can reach (pytest's own is private); what leaves it goes to its ``shared``."""
    with data_directory() as path:
        monkeypatch.setattr(postgres_cluster, "SHARED_HOME", path / "shared")
        yield path


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
    for process in started:
        with process:
            process.wait(PATIENCE_S)


@contextmanager
def _running(data_dir: Path) -> Iterator[Running]:
    server = EmbeddedPostgres(data_dir)
    dsn = server.start()
    try:
        yield Running(dsn, locate_cluster(data_dir))
    finally:
        server.stop()


def _start_process(data_dir: Path, processes: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS, data_dir], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    processes.append(process)
    return process


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def _query(dsn: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def _answers(dsn: str) -> bool:
    with suppress(psycopg.OperationalError):
        return _query(dsn, "select 1") == [(1,)]
    return False


def _replaced(home: Path, dsn: str, before: int) -> None:
    """Wait for another server than that one; asked in this order, for a server that ends may answer once more."""
    cluster = locate_cluster(home)
    _eventually(lambda: announced(cluster)[0] not in (0, before) and _answers(dsn))


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # whoever adopts a dead process may take its time to bury it
        return sys.platform == "linux" and "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return True


def test_p2_the_server_trusts_nobody_and_listens_to_no_network(home: Path) -> None:
    with _running(home) as server:
        assert _query(server.dsn, "show listen_addresses") == [("",)]
        assert _query(server.dsn, "select distinct type, auth_method from pg_hba_file_rules") == [("local", "peer")]
        assert _query(server.dsn, "show fsync") == [("on",)]
        assert server.cluster.socket_dir.stat().st_mode & 0o777 == 0o700


@as_root
def test_p2_another_user_of_the_machine_is_not_let_in(home: Path) -> None:
    with _running(home) as server:
        server.cluster.socket_dir.chmod(0o755)
        (server.cluster.socket_dir / ".s.PGSQL.5432").chmod(0o777)
        refused = subprocess.run(
            [server.cluster.binaries / "psql", server.dsn, "-c", "select 1"],
            user="daemon",
            group="daemon",
            extra_groups=[],
            capture_output=True,
            text=True,
            check=False,
        )
    assert refused.returncode != 0
    assert "authentication failed" in refused.stderr


def test_p3_the_log_of_the_server_repeats_nothing_that_was_sent(home: Path) -> None:
    with _running(home) as server:
        _query(
            server.dsn, "create table unique_texts (text text primary key); insert into unique_texts values ('s3cret')"
        )
        for failing in ("select 's3cret'::int", "insert into unique_texts values ('s3cret')", "select 's3cret' from ("):
            with pytest.raises(psycopg.Error):
                _query(server.dsn, failing)
    assert "s3cret" not in server.cluster.log.read_text()


def test_a_stopped_server_leaves_no_process_and_keeps_what_was_committed(home: Path) -> None:
    with _running(home) as server:
        _query(server.dsn, "create table kept as select 1 as id")
        pid = postmaster(home)
    assert _is_gone(pid)
    assert not (server.cluster.data / "postmaster.pid").exists()

    with _running(home) as server:
        assert _query(server.dsn, "select id from kept") == [(1,)]


def test_a_ctrl_c_in_the_terminal_does_not_reach_the_server(home: Path) -> None:
    with _running(home):
        assert os.getsid(postmaster(home)) != os.getsid(0)


async def test_a_killed_server_comes_back_by_itself_with_every_committed_row(home: Path) -> None:
    async with embedded_postgres(home) as dsn:
        _query(dsn, "create table kept as select 1 as id")
        killed = postmaster(home)
        os.kill(killed, signal.SIGKILL)
        await asyncio.to_thread(_replaced, home, dsn, killed)
        assert _query(dsn, "select id from kept") == [(1,)]


def test_processes_that_start_together_share_one_server(home: Path, processes: list[subprocess.Popen[str]]) -> None:
    started = [_start_process(home / "data", processes) for _ in range(3)]

    dsns = {_first_line(process) for process in started}

    assert len(dsns) == 1
    assert _answers(dsns.pop())


@pytest.mark.parametrize("how", [signal.SIGKILL, None], ids=["killed", "stopped"])
def test_when_the_owner_ends_the_other_process_starts_the_server_again(
    home: Path, processes: list[subprocess.Popen[str]], how: signal.Signals | None
) -> None:
    owner = _start_process(home, processes)
    dsn = _first_line(owner)
    guest = _start_process(home, processes)
    assert _first_line(guest) == dsn
    _query(dsn, "create table kept as select 1 as id")
    before = postmaster(home)

    if how is None:
        assert owner.stdin is not None
        owner.stdin.close()
        assert owner.wait() == 0
    else:
        owner.send_signal(how)
        owner.wait()

    _replaced(home, dsn, before)
    assert _query(dsn, "select id from kept") == [(1,)]
    assert guest.poll() is None


@on_linux
def test_a_killed_process_leaves_no_server_behind(home: Path, processes: list[subprocess.Popen[str]]) -> None:
    process = _start_process(home, processes)
    _first_line(process)
    server = postmaster(home)

    process.kill()
    process.wait()

    _eventually(lambda: _is_gone(server))


def test_a_pid_file_that_names_a_foreign_process_is_no_obstacle(home: Path) -> None:
    with _running(home) as server:
        pid_file = server.cluster.data / "postmaster.pid"
        left_over = pid_file.read_text().splitlines()
    is_root = os.geteuid() == 0
    with subprocess.Popen(["sleep", "600"], user=server.cluster.user.pw_uid if is_root else None) as foreign:
        pid_file.write_text("\n".join([str(foreign.pid), *left_over[1:]]) + "\n")
        try:
            with _running(home) as server:
                assert _answers(server.dsn)
            assert foreign.poll() is None
        finally:
            foreign.kill()


@on_linux
def test_a_server_that_was_left_running_is_taken_over_and_started_anew(home: Path) -> None:
    with _running(home) as server:
        command = Path(f"/proc/{postmaster(home)}/cmdline").read_bytes().decode().split("\0")[:-1]
    is_root = os.geteuid() == 0
    orphan = subprocess.Popen(command, user=server.cluster.user.pw_uid if is_root else None, cwd="/")
    with orphan:
        _eventually(lambda: _answers(server.dsn))
        with _running(home) as again:
            assert orphan.wait() == 0
            assert _answers(again.dsn)


def test_an_interrupted_first_start_is_begun_again(home: Path) -> None:
    (home / "initdb-1").mkdir()
    (home / "initdb-1" / "PG_VERSION").write_text("18")

    with _running(home) as server:
        assert _answers(server.dsn)

    assert not (home / "initdb-1").exists()


def test_a_path_too_long_for_a_socket_gets_one_in_tmp(home: Path) -> None:
    deep = home / ("x" * 100)
    with _running(deep) as server:
        assert server.cluster.socket_dir.parent == Path("/tmp")
        assert _answers(server.dsn)
    server.cluster.socket_dir.rmdir()


def test_a_cluster_of_another_version_is_refused_with_advice(home: Path) -> None:
    with _running(home) as server:
        data = server.cluster.data
    (data / "PG_VERSION").write_text("9\n")

    with pytest.raises(EmbeddedPostgresError, match="pg_dump"):
        EmbeddedPostgres(home).start()


def test_a_server_that_cannot_start_says_why(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _running(home) as server:
        data = server.cluster.data
    (data / "postgresql.conf").write_text("no_such_setting = on\n")
    monkeypatch.setattr("infra.embedded_postgres.FAILED_STARTS", 2)

    with pytest.raises(EmbeddedPostgresError, match="no_such_setting"):
        EmbeddedPostgres(home).start()


@as_root
def test_root_keeps_the_cluster_of_a_private_directory_elsewhere_and_says_so(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    private = home / "private"
    private.mkdir(mode=0o700)
    with caplog.at_level(logging.INFO), _running(private / "data") as server:
        assert server.cluster.home.parent == home / "shared"
        assert server.cluster.data.stat().st_uid != 0
        assert _answers(server.dsn)
    assert str(server.cluster.home) in caplog.text


@as_root
def test_root_copies_binaries_that_the_server_cannot_reach(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = home / "root"
    private.mkdir(mode=0o700)
    package = postgres_cluster._package()
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        (private / name).symlink_to(package.with_name(name))
    monkeypatch.setattr(postgres_cluster, "_package", lambda: private / "embedded_postgres")

    with _running(home / "data") as server:
        assert server.cluster.binaries.is_relative_to(home / "shared")
        assert _answers(server.dsn)
