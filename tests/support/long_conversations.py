"""Long conversations of a whole system, and what its model server was asked for them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from psycopg import AsyncConnection

from domain.summarising import INSTRUCTIONS
from tests.support.model_script import Rule, says
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer, Received
    from tests.support.system import Conversation, Event, System

SUMMARY = "## Goal\nA trip.\n\n## Critical context\nThe code is 4711."
SUMMARISES = Rule(answer=says(SUMMARY), any_text="^You summarise")
AGREES = Rule(answer=says("Yes."))
TIGHT = {"budget_tokens": 800, "keep_recent_tokens": 400}
LONG = "word " * 200
AGAIN_S = 0.05
OPEN_WORK = """
select exists (select from projections where position < (select max(position) from log.events))
    or exists (
        select from agenda where kind = 'compaction' and conversation_id = %s
            and (claimed_by is not null or wake_at is not null))
"""


async def talked(
    system: System, turns: int, *, settings: dict[str, Any] | None = None, **compaction: Any
) -> Conversation:
    """Begin a conversation of so many turns, each of about 260 tokens."""
    conversation = await system.start(**(settings or {}), compaction={**TIGHT, **compaction})
    for n in range(turns):
        await conversation.say(f"{n} {LONG}")
        await conversation.turn_ends(n + 1)
    return conversation


async def summaries(conversation: Conversation, *, at_least: int = 1) -> list[Any]:
    """Wait until so many summaries are shown, and return them."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            shown = await conversation.shown("summaries", limit=200)
            if len(shown["items"]) >= at_least:
                return list(shown["items"])
            await asyncio.sleep(AGAIN_S)


async def compacted(conversation: Conversation, database_url: str) -> None:
    """Wait until all that the log has is shown, and no compaction is owed by it."""
    async with await AsyncConnection.connect(database_url, autocommit=True) as connection:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                cursor = await connection.execute(OPEN_WORK, [conversation.id])
                row = await cursor.fetchone()
                if row is not None and not row[0]:
                    return
                await asyncio.sleep(AGAIN_S)


async def next_end(conversation: Conversation, after: int) -> Event:
    """Wait for the end of the turn after a seq."""
    path = f"{conversation.system.url}{conversation.path}/stream?after={after}"
    async with asyncio.timeout(PATIENCE_S), conversation.system.session.get(path) as stream:
        async for line in stream.content:
            if line.startswith(b"data: ") and b'"turn_ended"' in line:
                ended: Event = json.loads(line[6:])
                return ended
    raise AssertionError("the stream ended")


async def newest(conversation: Conversation, limit: int = 200) -> list[Event]:
    """Return the newest events."""
    return list((await conversation.system.get(f"{conversation.path}/events?limit={limit}"))["items"])


async def rebuilt(system: System, name: str) -> None:
    """Have a read model rebuilt, and wait for the swap."""
    generation = await _generation(system, name)
    await system.post(f"/v1/projections/{name}/rebuild", {}, status=202)
    async with asyncio.timeout(PATIENCE_S):
        while await _generation(system, name) == generation:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(AGAIN_S)


async def _generation(system: System, name: str) -> Any:
    items = (await system.get("/v1/projections"))["items"]
    [found] = [one["generation"] for one in items if one["name"] == name]
    return found


def is_summary(received: Received) -> bool:
    """Say whether a summary was asked for."""
    return bool(received.body["messages"][0]["content"] == INSTRUCTIONS)


def of_turns(model_server: ModelServer) -> list[Received]:
    """Return the requests for replies."""
    return [one for one in model_server.received if not is_summary(one)]


def paired(messages: list[dict[str, Any]]) -> bool:
    """Say whether each call has its one result, after it."""
    called: Counter[str] = Counter()
    for message in messages:
        called.update(call["id"] for call in message.get("tool_calls") or ())
        if message["role"] == "tool":
            called[message["tool_call_id"]] -= 1
            if called[message["tool_call_id"]] < 0:
                return False
    return not +called
