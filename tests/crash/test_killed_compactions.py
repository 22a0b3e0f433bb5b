"""Workers are killed around compactions: no summary is lost or made twice, no turn is delayed, no log is changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.support.model_script import Rule, gate, says
from tests.support.system import types
from tests.support.workers import assert_paid_once, front, whole_log, workers

if TYPE_CHECKING:
    from tests.support.forked import Forked
    from tests.support.model_server import ModelServer
    from tests.support.system import Conversation, System
    from tests.support.workers import Workers

__all__ = ["front", "workers"]

PATIENCE_S = 60
TIGHT = {"budget_tokens": 800, "keep_recent_tokens": 400}
LONG = "word " * 200
ASKED_TO_SUMMARISE = "^You summarise"
AGREES = Rule(answer=says("Yes."))
SUMMARISES = Rule(answer=says("## Goal\nA trip."), any_text=ASKED_TO_SUMMARISE)
KILLS = 5


async def over_budget(front: System) -> Conversation:
    """Begin a conversation whose third turn ends beyond its budget."""
    conversation = await front.start(compaction=TIGHT)
    for n in range(3):
        await conversation.say(f"{n} {LONG}")
        await conversation.turn_ends(n + 1)
    return conversation


async def summaries(conversation: Conversation) -> list[Any]:
    return list((await conversation.system.get(f"{conversation.path}/summaries"))["items"])


async def summarised(conversation: Conversation) -> list[Any]:
    """Wait until the conversation has a summary."""
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await summaries(conversation)):  # noqa: ASYNC110 - other processes make it
            await asyncio.sleep(0.02)
    return found


async def asked(model_server: ModelServer, times: int = 1) -> None:
    """Wait until summaries were asked for so often."""
    while summary_requests(model_server) < times:
        await model_server.requests(len(model_server.received) + 1, timeout_s=PATIENCE_S)


def summary_requests(model_server: ModelServer) -> int:
    return sum(str(one.body["messages"][0]["content"]).startswith("You summarise") for one in model_server.received)


async def settled(workers: Workers) -> None:
    """Wait until nobody works on a compaction, and none is due."""
    async with workers.connection() as connection, asyncio.timeout(PATIENCE_S):
        query = "select 1 from agenda where kind = 'compaction' and (claimed_by is not null or wake_at is not null)"
        while await (await connection.execute(query)).fetchone():  # noqa: ASYNC110 - the database tells nobody
            await asyncio.sleep(0.02)


async def test_killed_while_the_summary_is_written_another_worker_makes_it_and_no_turn_waits(
    front: System, workers: Workers, model_server: ModelServer
) -> None:
    hangs = Rule(answer=says("## Goal\n", gate("never")), any_text=ASKED_TO_SUMMARISE, times=1)
    model_server.rule(hangs, SUMMARISES, AGREES)
    async with workers.one() as first:
        conversation = await over_budget(front)
        await asked(model_server)
        log = await whole_log(conversation)
        await first.kill()
    async with workers.one():
        await conversation.say("meanwhile?")
        await conversation.turn_ends(4)
        await expire(workers)
        [summary] = await summarised(conversation)
        await settled(workers)
    assert summary["from_seq"] == 1
    assert summary_requests(model_server) == 2
    events = await whole_log(conversation)
    assert events[: len(log)] == log
    assert_paid_once(events)


async def test_killed_again_and_again_around_summaries_each_is_there_once(
    front: System, workers: Workers, model_server: ModelServer
) -> None:
    model_server.rule(SUMMARISES, AGREES)
    conversations: list[Conversation] = []
    for n in range(KILLS):
        async with workers.one() as worker:
            conversations.append(await over_budget(front))
            await kill_near_a_summary(worker, model_server, n)
        await expire(workers)
    async with workers.one():
        for conversation in conversations:
            await summarised(conversation)
        await settled(workers)
    for conversation in conversations:
        [summary] = await summaries(conversation)
        assert (summary["from_seq"], summary["revoked"]) == (1, False)
        events = await whole_log(conversation)
        assert_paid_once(events)
        assert types(events).count("turn_ended") == 3
    assert summary_requests(model_server) <= 2 * KILLS


async def kill_near_a_summary(worker: Forked, model_server: ModelServer, n: int) -> None:
    """Kill it a little later each time: when it asks, when it has the answer, and so on."""
    before = summary_requests(model_server)
    if n:
        await asked(model_server, max(before, 1))
    await asyncio.sleep(0.01 * n)
    await worker.kill()


async def expire(workers: Workers) -> None:
    """Let the claims of the dead end now."""
    await workers.expire_leases()
    async with workers.connection() as connection:
        await connection.execute("select pg_notify('agenda compaction', '0')")
