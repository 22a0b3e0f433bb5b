"""Kill writers and the database server of the PostgreSQL log at random: every acknowledged append is there after it.

``REJOINDER_CRASH_SECONDS`` (default 5) sets how long.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from infra.migrations import migrate
from tests.crash.log_kills import SECONDS, kill_at_random
from tests.support.postgres import own_postgres, postmaster
from tests.support.program import data_directory

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(300 + 3 * SECONDS)
async def test_l8_every_acknowledged_append_survives_kills_of_server_and_writers(tmp_path: Path) -> None:
    with data_directory() as home, own_postgres(home) as server:

        def restart() -> None:
            os.kill(postmaster(home), signal.SIGKILL)
            while server.tend():  # it dies when the kernel has time: until then it would be taken for the new one
                time.sleep(0.005)
            server.start()

        await migrate(server.dsn)
        log = await kill_at_random(server.dsn, tmp_path, restart)
    assert [event.position for event in log] == list(range(1, len(log) + 1)), "positions have gaps"
