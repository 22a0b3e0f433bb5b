"""Projectors that are killed or stopped: every event has effect once, and another process takes over in time."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from projections.catalog import PROJECTIONS
from projections.projector import LEASE_S, LOOK_EVERY_S
from tests.support.program import Program
from tests.support.projecting import fold_whole, interleaved
from tests.support.random_log import random_log
from tests.support.read_side import ReadSide, open_read_side
from tests.support.slack import PATIENCE_S, SLACK_S

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[2]
KILLS = 6
LEADING = """
select 1 from leases where key like 'projection:%%'
having count(*) = %s and bool_and(holder like %s)
"""
BLOCKED = "select 1 from pg_locks where relation = 'usage'::regclass and not granted"
NOT_HANDED_BACK = "select key from leases where key like 'projection:%' and until > '-infinity'"


@asynccontextmanager
async def projector(dsn: str, lease_s: float = LEASE_S, look_every_s: float = LOOK_EVERY_S) -> AsyncIterator[Process]:
    command = (sys.executable, "-m", "tests.support.projector_process", dsn, str(lease_s), str(look_every_s))
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    try:
        await said(process, {"ready"})
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def said(process: Process, lines: set[str]) -> None:
    """Return when the process has printed all these lines."""
    assert process.stdout is not None
    missing = set(lines)
    async with asyncio.timeout(PATIENCE_S):
        while missing:
            line = await process.stdout.readline()
            assert line, f"it ended before it said {missing}"
            missing.discard(line.decode().strip())


async def led_by(read_side: ReadSide, pid: int) -> None:
    """Return when a process leads every projection."""
    await read_side.until(LEADING, len(PROJECTIONS), f"%:{pid}:%")


async def moved(read_side: ReadSide, after: int) -> None:
    """Return when some projection has passed a position."""
    await read_side.until("select 1 from projections where position > %s", after)


async def test_r1_a_projector_killed_at_any_instant_gives_every_event_its_effect_once(database_url: str) -> None:
    chance = random.Random(1)
    log = interleaved([random_log(chance) for _ in range(60)], chance)
    share = len(log) // KILLS
    async with open_read_side(database_url) as read_side:
        for kill in range(KILLS):
            before = (await read_side.execute("select max(position) from projections"))[0][0]
            async with projector(database_url, 0.5, 0.1) as process:
                await led_by(read_side, process.pid)
                appending = asyncio.create_task(read_side.append(log[kill * share : (kill + 1) * share]))
                await moved(read_side, before)
                await asyncio.wait({appending}, timeout=chance.uniform(0, 0.1))
                process.kill()
            await appending
        await read_side.append(log[KILLS * share :])
        position = await read_side.store.head()
        async with projector(database_url, 0.5, 0.1):
            await read_side.reached(position)
        await assert_rows_are_whole(read_side)


async def assert_rows_are_whole(read_side: ReadSide) -> None:
    log = await read_side.store.read_all(0, limit=100_000, prefixes=["conversation-"])
    for projection in PROJECTIONS:
        assert await read_side.rows(projection) == fold_whole(projection, log), projection.name


async def test_r7_a_leader_that_is_killed_is_replaced_within_10_s(database_url: str) -> None:
    chance = random.Random(2)
    async with open_read_side(database_url) as read_side, projector(database_url) as first:
        await led_by(read_side, first.pid)
        async with projector(database_url) as second:
            appending = asyncio.create_task(read_side.append(random_log(chance)))
            await moved(read_side, 1)
            first.kill()
            killed = time.monotonic()
            await read_side.reached(await appending)
            assert time.monotonic() - killed < 10 + SLACK_S
            await led_by(read_side, second.pid)
        await assert_rows_are_whole(read_side)


async def test_r7_a_leader_that_is_stopped_in_its_transaction_is_replaced_within_10_s_and_refused_when_it_wakes(
    database_url: str,
) -> None:
    chance = random.Random(2)
    async with open_read_side(database_url) as read_side, projector(database_url) as first:
        await led_by(read_side, first.pid)
        async with projector(database_url) as second:
            async with read_side.holding("lock table usage in access exclusive mode"):
                position = await read_side.append(random_log(chance))
                await read_side.until(BLOCKED)
                first.send_signal(signal.SIGSTOP)
            stopped = time.monotonic()
            await read_side.reached(position)
            assert time.monotonic() - stopped < 10 + SLACK_S
            await led_by(read_side, second.pid)
            first.send_signal(signal.SIGCONT)
            appending = asyncio.create_task(read_side.append(random_log(chance)))
            await said(first, {f"no longer leading projection:{projection.name}" for projection in PROJECTIONS})
            await read_side.reached(await appending)
        await assert_rows_are_whole(read_side)


async def test_r7_a_program_that_is_told_to_stop_hands_its_read_models_back_at_once(database_url: str) -> None:
    with Program("serve", "--role", "projector", "--port", "0", database_url=database_url) as serving:
        async with open_read_side(database_url) as read_side:
            await led_by(read_side, serving.pid)
            await asyncio.to_thread(serving.stop, signal.SIGTERM)
            assert await read_side.execute(NOT_HANDED_BACK) == []
