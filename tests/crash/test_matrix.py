"""The short form of the crash matrix; ``python -m tests.crash.matrix --full`` is the whole of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.matrix.plans import SHORT, short_form
from tests.crash.matrix.rig import assembled
from tests.crash.matrix.scenarios import SCENARIOS
from tests.support.eventstoredb.process import DoubleProcess

if TYPE_CHECKING:
    from pathlib import Path

SEED = 1
SHORT_ON_EVENTSTOREDB = 24


@pytest.mark.timeout(600)
async def test_t3_t4_t5_t6_killed_anywhere_a_conversation_goes_on_as_its_log_says(postgres_server: str) -> None:
    await no_violations(postgres_server, "", kills=SHORT)


@pytest.mark.timeout(600)
async def test_t3_t4_t5_t6_and_so_it_does_on_eventstoredb(postgres_server: str, tmp_path: Path) -> None:
    with DoubleProcess(tmp_path / "log") as double:
        await no_violations(postgres_server, double.uri, kills=SHORT_ON_EVENTSTOREDB)


async def no_violations(postgres_server: str, eventstoredb: str, *, kills: int) -> None:
    """Run the short form on these stores; what it did is printed."""
    async with assembled(postgres_server, eventstoredb) as rig:
        report = await short_form(rig, SCENARIOS.values(), print, seed=SEED, kills=kills)
    print(report)
    assert not report.violations, "\n\n".join(map(str, report.violations))
