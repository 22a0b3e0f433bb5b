"""Kill writers and the log server of the EventStoreDB store at random: every acknowledged append is there after it.

The server is the double, stand-alone over a file. Half of ``REJOINDER_CRASH_SECONDS`` (default 5) sets how long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.log_kills import SECONDS, kill_at_random
from tests.support.eventstoredb.process import DoubleProcess

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(300 + 3 * SECONDS)
async def test_l8_every_acknowledged_append_survives_kills_of_server_and_writers(tmp_path: Path) -> None:
    with DoubleProcess(tmp_path / "log") as server:

        def restart() -> None:
            server.kill()
            server.start()

        await kill_at_random(server.uri, tmp_path, restart, SECONDS / 2)
