"""Many conversations that wait for people: they cost the worker nothing, and each is answered (H12).

60 of them, with ``REJOINDER_LONG=1`` 1,000.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from tests.support.long_form import LONG
from tests.support.model_script import Rule, call, calls, says
from tests.support.system import of_type
from tests.support.workers import assert_paid_once, front, workers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.model_server import ModelServer
    from tests.support.system import Conversation, System
    from tests.support.workers import Workers

__all__ = ["front", "workers"]

Made = TypeVar("Made")
PARKED = 1_000 if LONG else 60
WARM = 20
AT_A_TIME = 16
MORE_LINES = 2 * AT_A_TIME
"""What was not needed at once when all was warm: lines to the model and to the database, which are kept."""
MORE_MB = 12.0
"""What the memory of a process may grow by, whatever it is that waits: the allocator's noise."""

pytestmark = pytest.mark.timeout(900 if LONG else 300)


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def sockets(pid: int) -> int:
    """Return how many connections and pipes a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux tells what a process holds")
async def test_h12_parked_conversations_hold_no_memory_and_no_connection_and_each_is_answered_in_turn(
    front: System, workers: Workers, model_server: ModelServer
) -> None:
    model_server.rule(
        Rule(answer=says(calls(call("send_email", {"to": "ada@example.org", "body": "hi"}))), last_role="user"),
        Rule(answer=says("Sent"), last_role="tool"),
    )

    async def park() -> tuple[Conversation, str]:
        conversation = await front.start("Write to Ada")
        return conversation, of_type(await conversation.suspends(), "suspension")[0]["tool_call_id"]

    async with workers.one() as worker:
        await _each(park, WARM)
        before = memory_mb(worker.pid), sockets(worker.pid), await _connections(workers)
        parked = await _each(park, PARKED)
        await workers.rest()
        after = memory_mb(worker.pid), sockets(worker.pid), await _connections(workers)
        for conversation, call_id in parked:
            await conversation.resolve(call_id, "approve")
            assert_paid_once(await conversation.turn_ends())
        answered_mb = memory_mb(worker.pid)
    print(
        f"{PARKED} parked: memory {before[0]:.1f} -> {after[0]:.1f} MB (answered: {answered_mb:.1f}), "
        f"descriptors {before[1]} -> {after[1]}, connections {before[2]} -> {after[2]}"
    )
    assert after[0] < before[0] + MORE_MB
    assert after[1] <= before[1] + MORE_LINES
    assert after[2] <= before[2] + MORE_LINES
    assert len(model_server.received) == WARM + 2 * PARKED


async def _each(make: Callable[[], Awaitable[Made]], count: int) -> list[Made]:
    slots = asyncio.Semaphore(AT_A_TIME)

    async def one() -> Made:
        async with slots:
            return await make()

    return await asyncio.gather(*(one() for _ in range(count)))


async def _connections(workers: Workers) -> int:
    async with workers.connection() as connection:
        cursor = await connection.execute("select count(*) from pg_stat_activity where datname = current_database()")
        row = await cursor.fetchone()
    assert row is not None
    return int(row[0])
