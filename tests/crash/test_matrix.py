"""The short form of the crash matrix; ``python -m tests.crash.matrix --full`` is the whole of it."""

from __future__ import annotations

import pytest

from tests.crash.matrix.plans import SHORT, short_form
from tests.crash.matrix.rig import assembled
from tests.crash.matrix.scenarios import SCENARIOS

SEED = 1


@pytest.mark.timeout(600)
async def test_t3_t4_t5_t6_a_process_killed_anywhere_is_gone_on_for_by_another_as_its_log_says(
    postgres_server: str,
) -> None:
    async with assembled(postgres_server) as rig:
        report = await short_form(rig, SCENARIOS.values(), print, seed=SEED, kills=SHORT)
    print(report)
    assert not report.violations, "\n\n".join(map(str, report.violations))
