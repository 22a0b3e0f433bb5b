"""Rebuilds that are killed at any moment, while events come in: each next one goes on, and the last one swaps once."""

from __future__ import annotations

import asyncio
import random
import sys
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from projections.catalog import PROJECTIONS
from projections.rebuild.run import rebuild
from tests.support.projecting import interleaved
from tests.support.random_log import random_log
from tests.support.read_side import ReadSide, open_read_side
from tests.support.rebuilding import assert_as_folded, assert_no_trace, differences, workshop

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[2]
PATIENCE_S, AGAIN_S = 120, 0.005
LEASED = "select 1 from leases where key like 'rebuild:%' and until > clock_timestamp()"
SLICES = "select count(*) filter (where done), count(*) from rebuild_slices"
INDEXED = "select count(*) from rebuilds where indexed"


@asynccontextmanager
async def rebuilder(*arguments: str) -> AsyncIterator[Process]:
    program = [sys.executable, "-m", "tests.support.rebuild_process", *arguments]
    process = await asyncio.create_subprocess_exec(*program, cwd=ROOT, stdin=PIPE, stdout=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def folded(read_side: ReadSide) -> int:
    """Return how many slices are folded, one more with the indexes."""
    [(done, _)], [(indexed,)] = await read_side.execute(SLICES), await read_side.execute(INDEXED)
    return int(done + indexed)


async def leases_ended(read_side: ReadSide) -> None:
    """Wait until a killed process holds nothing any more: until then the next one would be refused."""
    async with asyncio.timeout(PATIENCE_S):
        while await read_side.execute(LEASED):  # noqa: ASYNC110 - time makes it
            await asyncio.sleep(AGAIN_S)


async def test_r5_a_rebuild_killed_at_any_moment_is_resumed_and_makes_what_the_log_says(database_url: str) -> None:
    chance = random.Random(21)
    log = interleaved([random_log(chance) for _ in range(30)], chance)
    half = len(log) // 2
    async with open_read_side(database_url) as read_side, read_side.projecting():
        await read_side.reached(await read_side.append(log[:half]), timeout_s=PATIENCE_S)
        appending = asyncio.create_task(read_side.append(log[half:]))
        seen = -1
        for _ in range(4):
            async with rebuilder(database_url) as process, asyncio.timeout(PATIENCE_S):
                while process.returncode is None and await folded(read_side) <= seen:  # noqa: ASYNC110 - it does
                    await asyncio.sleep(AGAIN_S)
                await asyncio.wait({asyncio.create_task(process.wait())}, timeout=chance.uniform(0, 0.05))
            seen = await folded(read_side)
            await leases_ended(read_side)
        async with rebuilder(database_url) as process, asyncio.timeout(PATIENCE_S):
            assert await process.wait() == 0
        await read_side.reached(await appending, timeout_s=PATIENCE_S)
        await assert_no_trace(read_side)
        assert await differences(read_side) == []
        await assert_as_folded(read_side)


async def test_r5_one_that_is_stopped_and_wakes_up_writes_nothing_any_more(database_url: str) -> None:
    chance = random.Random(22)
    async with open_read_side(database_url) as read_side, read_side.projecting():
        log = interleaved([random_log(chance) for _ in range(20)], chance)
        await read_side.reached(await read_side.append(log), timeout_s=PATIENCE_S)
        async with rebuilder(database_url, "--stands-still") as process, asyncio.timeout(PATIENCE_S):
            assert process.stdin is not None
            assert process.stdout is not None
            assert await process.stdout.readline() == b"stands still\n"
            await leases_ended(read_side)
            await rebuild(workshop(read_side), PROJECTIONS)
            process.stdin.write(b"wake up\n")
            assert await process.wait() != 0
        assert await read_side.execute("select distinct generation from projections") == [(2,)]
        await assert_no_trace(read_side)
        await assert_as_folded(read_side)
