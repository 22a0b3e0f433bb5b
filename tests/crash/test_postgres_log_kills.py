"""Kill writers and the database server of the PostgreSQL log at random: every acknowledged append is there after it.

``REJOINDER_CRASH_SECONDS`` (default 5) sets how long.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infra.embedded_postgres import EmbeddedPostgres
from infra.migrations import migrate
from infra.postgres_cluster import locate_cluster
from tests.crash.log_kills import SECONDS, kill_at_random

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def home() -> Iterator[Path]:
    """A data directory that is not in tmp_path, where root's server cannot go."""
    directory = Path(tempfile.mkdtemp(prefix="rejoinder-kills-"))
    directory.chmod(0o711)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.timeout(120 + 3 * SECONDS)
async def test_l8_every_acknowledged_append_survives_kills_of_server_and_writers(home: Path, tmp_path: Path) -> None:
    server = EmbeddedPostgres(home)
    dsn = server.start()

    def restart() -> None:
        os.kill(int((locate_cluster(home).data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
        while server.tend():  # it dies when the kernel has time: until then it would be taken for the new one
            time.sleep(0.005)
        server.start()

    try:
        await migrate(dsn)
        log = await kill_at_random(dsn, tmp_path, restart)
    finally:
        server.stop()
    assert [event.position for event in log] == list(range(1, len(log) + 1)), "positions have gaps"
