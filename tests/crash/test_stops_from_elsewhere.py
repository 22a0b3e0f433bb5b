"""Cancel, interrupt and end through another process than the one that runs the turn: obeyed, and nothing is lost."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.model_script import gate, says
from tests.support.slack import PATIENCE_S, SLACK_S
from tests.support.stream_nodes import SseReader
from tests.support.system import of_type, types
from tests.support.workers import assert_paid_once, front, workers

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer
    from tests.support.system import Conversation, System
    from tests.support.workers import Workers

__all__ = ["front", "workers"]

OBEYED_S = 1.0
SAID = "Once upon a time "


async def shown(conversation: Conversation) -> None:
    """Wait until another process than the worker has what was said so far."""
    async with conversation.system.session.get(f"{conversation.system.url}{conversation.path}/stream") as response:
        await SseReader(response).until_said(SAID)


async def saved(workers: Workers) -> None:
    """Wait until the text so far is where every process can read it."""
    async with workers.connection() as connection, asyncio.timeout(PATIENCE_S):
        text = ""
        while text != SAID:
            await asyncio.sleep(0.02)
            row = await (await connection.execute("select text from live_turns")).fetchone()
            text = row[0] if row else ""


@pytest.mark.parametrize("how", ["cancel", "interrupt", "end"])
async def test_b5_b3_b6_a_stop_through_another_process_is_obeyed_in_a_second_and_keeps_what_was_said(
    front: System, workers: Workers, model_server: ModelServer, how: str
) -> None:
    model_server.expect(says(SAID, gate("never")), says("Something else"))
    async with workers.one(), workers.one():
        conversation = await front.start("Tell me a story")
        await shown(conversation)
        await saved(workers)
        began = time.monotonic()
        if how == "interrupt":
            await conversation.say("Stop, something else", when_busy="interrupt")
        else:
            await front.post(f"{conversation.path}/{how}", {}, status=202 if how == "cancel" else 200)
        obeyed_s = await model_server.closed(0) - began
        events = await conversation.turn_ends(2 if how == "interrupt" else 1)
    print(f"{how}: the model was left {obeyed_s * 1000:.0f} ms after it was asked for")
    assert obeyed_s < OBEYED_S + SLACK_S
    assert_paid_once(events)
    stopped = of_type(events, "turn_ended")[0]
    assert (stopped["outcome"], stopped["partial_text"]) == ("cancelled", SAID)
    assert types(events).count("assistant_msg") == (1 if how == "interrupt" else 0)
    if how == "interrupt":
        roles = [one["role"] for one in model_server.received[1].body["messages"]]
        assert roles[0] == roles[-1] == "user"
        assert SAID.strip() in str(model_server.received[1].body["messages"]), "the model knows where it was cut"


async def test_b5_a_turn_whose_worker_is_dead_is_cancelled_all_the_same(
    front: System, workers: Workers, model_server: ModelServer
) -> None:
    model_server.expect(says(SAID, gate("never")), says("Hello again"))
    async with workers.one() as worker:
        conversation = await front.start("Tell me a story")
        await saved(workers)
        await worker.kill()
    await front.post(f"{conversation.path}/cancel", {}, status=202)
    ended = of_type(await conversation.events(), "turn_ended")
    assert [(one["outcome"], one["partial_text"]) for one in ended] == [("cancelled", SAID)], "by nobody else"
    await workers.expire_leases()
    async with workers.one():
        await conversation.say("Hello")
        events = await conversation.turn_ends(2)
    assert_paid_once(events)
    assert "turn_resumed" not in types(events)
