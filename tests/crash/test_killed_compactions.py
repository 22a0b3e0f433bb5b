"""A worker is killed while it has a summary made: another one makes it, no turn waits, and no log is changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.support.long_conversations import AGREES, SUMMARISES, is_summary, summaries, talked
from tests.support.model_script import Rule, gate, says
from tests.support.slack import PATIENCE_S
from tests.support.workers import assert_paid_once, front, whole_log, workers

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer
    from tests.support.system import System
    from tests.support.workers import Workers

__all__ = ["front", "workers"]


async def test_killed_while_the_summary_is_written_another_worker_makes_it_and_no_turn_waits(
    front: System, workers: Workers, model_server: ModelServer
) -> None:
    hangs = Rule(answer=says("## Goal\n", gate("never")), any_text="^You summarise", times=1)
    model_server.rule(hangs, SUMMARISES, AGREES)
    async with workers.one() as first:
        conversation = await talked(front, 3)
        while not any(map(is_summary, model_server.received)):
            await model_server.requests(len(model_server.received) + 1)
        log = await whole_log(conversation)
        await first.kill()
    dead = await workers.claims()
    async with workers.one():
        await conversation.say("meanwhile?")
        await conversation.turn_ends(4)
        await workers.expire_leases(dead)
        [summary] = await summaries(conversation)
        async with asyncio.timeout(PATIENCE_S):
            await settled(workers)
    assert summary["from_seq"] == 1
    assert sum(map(is_summary, model_server.received)) == 2
    events = await whole_log(conversation)
    assert events[: len(log)] == log
    assert_paid_once(events)


async def settled(workers: Workers) -> None:
    """Wait until nobody works on a compaction, and none is due."""
    query = "select 1 from agenda where kind = 'compaction' and (claimed_by is not null or wake_at is not null)"
    async with workers.connection() as connection:
        while await (await connection.execute(query)).fetchone():  # noqa: ASYNC110 - the database tells nobody
            await asyncio.sleep(0.02)
