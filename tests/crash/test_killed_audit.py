"""A worker that is killed while a model speaks: what it asked is known all the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.support.model_script import hang, says
from tests.support.slack import PATIENCE_S
from tests.support.workers import front, workers

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.model_server import ModelServer
    from tests.support.system import Conversation, System
    from tests.support.workers import Workers

__all__ = ["front", "workers"]


async def kept(conversation: Conversation, holds: Callable[[list[Any]], bool]) -> list[dict[str, Any]]:
    """Wait until the audit has what is looked for, and return it."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            items: list[dict[str, Any]] = (await conversation.shown("model-calls"))["items"]
            if holds(items):
                return items
            await asyncio.sleep(0.02)


async def test_c6_a_try_whose_process_was_killed_is_kept_with_its_request_and_without_an_outcome(
    front: System, workers: Workers, model_server: ModelServer
) -> None:
    model_server.expect(says("Half a ", hang()), says("Done"))
    async with workers.one(audit="on") as first:
        conversation = await front.start("Go")
        await model_server.requests(1)
        await kept(conversation, lambda items: len(items) == 1)
        await first.kill()
    await workers.expire_leases()
    async with workers.one(audit="on"):
        await conversation.turn_ends()
        items = await kept(conversation, lambda items: [one["outcome"] for one in items] == [None, "ok"])
    assert [(one["attempt"], one["try"], one["messages"]) for one in items] == [(1, 1, 1), (2, 1, 1)]
    requests = [await front.get(f"{conversation.path}/model-calls/{one['id']}/request") for one in items]
    assert requests[0] == requests[1]
    assert requests[0]["messages"] == model_server.received[0].body["messages"]
