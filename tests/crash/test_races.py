"""Workers and people who are there first, all of them: one wins, and the log has one of everything."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from tests.support.long_form import LONG
from tests.support.model_script import Rule, call, calls, says
from tests.support.system import System, of_type, types
from tests.support.workers import assert_paid_once, front, whole_log, workers

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer
    from tests.support.system import Event
    from tests.support.workers import Workers

__all__ = ["front", "workers"]

TURNS, ROBBED_TURNS = (200, 100) if LONG else (15, 8)
THEFTS = 3
"""Of the leases in each turn, at random moments."""
RESOLVERS, NODES = 64, 4
pytestmark = pytest.mark.timeout(900 if LONG else 300)


async def test_t7_two_workers_race_for_every_turn_of_a_conversation_and_the_model_is_asked_once_a_step(
    front: System, workers: Workers, model_server: ModelServer
) -> None:
    conversation = await front.start()
    seen: list[Event] = []
    async with workers.one(), workers.one():
        events = aiter(conversation.stream())
        for turn in range(TURNS):
            await conversation.say(f"Message {turn}")
            while types(seen[-1:]) != ["turn_ended"] or types(seen).count("turn_ended") <= turn:
                seen.append(await anext(events))
    assert_paid_once(seen)
    assert types(seen).count("turn_resumed") == 0
    assert len(model_server.received) == TURNS


async def test_t7_two_workers_that_lose_their_leases_again_and_again_record_everything_once(
    front: System, workers: Workers, model_server: ModelServer
) -> None:
    """Now the model may be asked again, by whoever takes over; what is recorded has one of everything all the same."""
    add = call("add", {"a": 1, "b": 2})
    model_server.rule(
        Rule(answer=says("So ", calls(add)), last_role="user"),
        Rule(answer=says("Three"), last_role="tool"),
    )
    conversation = await front.start()
    async with workers.one(), workers.one():
        for turn in range(ROBBED_TURNS):
            await conversation.say(f"Message {turn}")
            for _ in range(THEFTS):
                await asyncio.sleep(random.uniform(0, 0.05))
                await workers.expire_leases()
            await conversation.turn_ends(turn + 1)
    events = await whole_log(conversation)
    assert_paid_once(events)
    resumed, asked = types(events).count("turn_resumed"), len(model_server.received)
    print(f"{ROBBED_TURNS} turns, {resumed} take-overs, {asked} model calls")
    assert [one["outcome"] for one in of_type(events, "turn_ended")] == ["completed"] * ROBBED_TURNS


@pytest.mark.parametrize("outcome", ["approve", "reject"])
async def test_h2_one_of_64_racing_resolutions_through_four_processes_wins(
    front: System, workers: Workers, model_server: ModelServer, outcome: str
) -> None:
    model_server.expect(says(calls(call("send_email", {"to": "ada@example.org", "body": "hi"}))), says("Done"))
    async with AsyncExitStack() as stack:
        nodes = await asyncio.gather(*(stack.enter_async_context(workers.one("api")) for _ in range(NODES)))
        await stack.enter_async_context(workers.one())
        conversation = await front.start("Write to Ada")
        asked = of_type(await conversation.suspends(), "suspension")[0]["tool_call_id"]
        path = f"{conversation.path}/tool-calls/{asked}/resolution"

        async def resolve(n: int) -> str:
            node = System(nodes[n % NODES].url, front.session)
            body = {"outcome": outcome if n % 2 else "approve", "reason": f"number {n}"}
            while True:
                headers = {"Idempotency-Key": f"number {n}"}
                async with node.session.post(node.url + path, json=body, headers=headers) as response:
                    answer = await response.json()
                if response.status != 503:
                    return "200" if response.status == 200 else f"{response.status} {answer['type']}"
                await asyncio.sleep(float(response.headers["Retry-After"]))

        answers = await asyncio.gather(*map(resolve, range(RESOLVERS)))
        events = await conversation.turn_ends()
    assert Counter(answers) == {"200": 1, "409 urn:rejoinder:stale": RESOLVERS - 1}
    (resolution,), (result,) = of_type(events, "resolution"), of_type(events, "tool_result")
    assert resolution["reason"] == f"number {answers.index('200')}"
    assert (resolution["outcome"], result["status"]) in (("approved", "ok"), ("rejected", "rejected"))
    assert_paid_once(events)
