"""Processes that stand still (SIGSTOP) and wake up later: others go on meanwhile, the woken one does nothing twice.

``REJOINDER_LONG=1`` stops them for 15 s and waits for leases; the short form ends leases by hand.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

from tests.support.long_form import LONG
from tests.support.model_script import gate, says
from tests.support.slack import PATIENCE_S, SLACK_S
from tests.support.system import Conversation, System, of_type, system_over, types
from tests.support.workers import assert_paid_once, front, whole_log, workers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.forked import Forked
    from tests.support.model_server import ModelServer
    from tests.support.workers import Workers

__all__ = ["front", "workers"]

STOPPED_S = 15.0 if LONG else 1.0
TAKEN_OVER_S = 10.0
TURNS_MEANWHILE = 3
WRITERS = 16


@asynccontextmanager
async def stopped(process: Forked) -> AsyncIterator[float]:
    """Let a process stand still for the block; yields when that began."""
    process.signal(signal.SIGSTOP)
    try:
        yield time.monotonic()
    finally:
        process.signal(signal.SIGCONT)


async def test_t7_a_worker_that_was_stopped_is_taken_over_and_appends_nothing_when_it_wakes(
    front: System, workers: Workers, model_server: ModelServer
) -> None:
    """Its whole reply waits for it when it wakes, long after: the other has gone on by several turns."""
    model_server.expect(says("Mine, ", gate("reply"), "but too late"), says("The other's"))
    async with workers.one() as sleeper:
        conversation = await front.start("Hello")
        await model_server.requests(1)
        its_own = await workers.claims()
        async with workers.one() as other:
            async with stopped(sleeper) as since:
                model_server.open("reply")
                if LONG:
                    await model_server.requests(2)
                    took_over_s = model_server.received[1].arrived_at - since
                    print(f"taken over {took_over_s:.2f} s after the stop")
                    assert took_over_s < TAKEN_OVER_S + SLACK_S
                else:
                    await workers.expire_leases(its_own)
                await conversation.turn_ends()
                for turn in range(TURNS_MEANWHILE):
                    await conversation.say(f"And {turn}")
                    await conversation.turn_ends(turn + 2)
                await asyncio.sleep(max(0, since + STOPPED_S - time.monotonic()))
            other.signal(signal.SIGTERM)
            await other.gone()
        await conversation.say("Who is awake?")
        events = await conversation.turn_ends(TURNS_MEANWHILE + 2)
    assert_paid_once(events)
    assert types(events)[2:6] == ["turn_started", "turn_resumed", "assistant_msg", "turn_ended"]
    assert of_type(events, "assistant_msg")[0]["content"][0]["text"] == "The other's"
    assert types(events).count("turn_resumed") == 1
    assert len(model_server.received) == 1 + 1 + TURNS_MEANWHILE + 1, "nothing was asked twice"


async def test_l12_an_api_process_that_is_stopped_while_it_appends_stops_nobody_and_loses_nothing(
    workers: Workers, front: System
) -> None:
    """What was sent to it is answered when it wakes, and is in the log once; a repeat of it changes nothing."""
    conversations = [await front.start() for _ in range(WRITERS)]
    sent: dict[str, list[str]] = {conversation.id: [] for conversation in conversations}
    slowest_s, put_off = 0.0, list[str]()
    async with workers.one("api") as process:
        node = System(process.url, front.session)

        async def write(where: System, conversation: Conversation) -> None:
            message_id = f"msg_{uuid4().hex}"
            body = {"content": "hello", "message_id": message_id, "respond": False}
            while not await _accepted(where, f"{conversation.path}/messages", body):
                put_off.append(message_id)
            sent[conversation.id].append(message_id)

        async def keep_writing(where: System, conversation: Conversation) -> None:
            while not done.is_set():
                await write(where, conversation)

        for _ in range(2 if LONG else 3):
            done = asyncio.Event()
            writing = [asyncio.create_task(keep_writing(node, conversation)) for conversation in conversations]
            await _more(sent, WRITERS + random.randrange(WRITERS))
            async with stopped(process) as since:
                while time.monotonic() < since + STOPPED_S:
                    began = time.monotonic()
                    await write(front, random.choice(conversations))
                    slowest_s = max(slowest_s, time.monotonic() - began)
                done.set()
            await asyncio.gather(*writing)
    for conversation in conversations:
        logged = [said["message_id"] for said in of_type(await whole_log(conversation), "user_msg")]
        assert sorted(logged) == sorted(sent[conversation.id])
    accepted = sum(map(len, sent.values()))
    print(f"{accepted} messages, {len(put_off)} put off; the slowest append of the others took {slowest_s:.2f} s")
    assert slowest_s < 5.0 + SLACK_S


async def test_r7_a_projector_that_was_stopped_is_replaced_and_refused_when_it_wakes(
    workers: Workers, database_url: str, model_server: ModelServer
) -> None:
    async with system_over(database_url, model_server, ["api"]) as api, workers.one("projector") as leader:
        conversation = await api.start()
        assert await _projected(conversation, await _said(conversation), wait_ms=30_000)
        async with workers.one("projector"):
            async with stopped(leader) as since:
                position = await _said(conversation)
                if not LONG:
                    async with workers.connection() as connection:
                        await connection.execute("update leases set until = clock_timestamp()")
                while not await _projected(conversation, position, wait_ms=200):
                    assert time.monotonic() < since + 2 * TAKEN_OVER_S
                took_over_s = time.monotonic() - since
                await asyncio.sleep(max(0, since + STOPPED_S - time.monotonic()))
            for _ in range(TURNS_MEANWHILE):
                position = await _said(conversation)
            assert await _projected(conversation, position, wait_ms=30_000)
            shown = await api.get(f"{conversation.path}/messages")
    print(f"projected again {took_over_s:.2f} s after the stop")
    assert took_over_s < TAKEN_OVER_S + SLACK_S
    assert [one["seq"] for one in shown["items"]] == [*range(2, TURNS_MEANWHILE + 4)]


async def _accepted(node: System, path: str, body: dict[str, object]) -> bool:
    """Send a message; False if that has to be done again, says the answer."""
    async with node.session.post(node.url + path, json=body) as response:
        assert response.status in (202, 503), await response.text()
        return response.status == 202 or response.headers["Retry-After"] == ""


async def _said(conversation: Conversation) -> int:
    return int((await conversation.say("Noted", respond=False))["position"])


async def _projected(conversation: Conversation, position: int, *, wait_ms: int) -> bool:
    path = f"{conversation.path}/messages?min_position={position}&wait_ms={wait_ms}"
    async with conversation.system.session.get(conversation.system.url + path) as response:
        return response.status == 200


async def _more(sent: dict[str, list[str]], count: int) -> None:
    """Wait until so many more messages were accepted."""
    wanted = sum(map(len, sent.values())) + count
    async with asyncio.timeout(PATIENCE_S):
        while sum(map(len, sent.values())) < wanted:  # noqa: ASYNC110 - what is waited for is this very number
            await asyncio.sleep(0.001)
