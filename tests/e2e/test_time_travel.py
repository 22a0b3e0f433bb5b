"""Time travel over HTTP, on both stores: random conversations are what their events make of them, at each of these.

`REJOINDER_PROPERTY_RUNS` sets how many are tried on each store (5). No projector runs: there are no read models.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from api.debugging.history import History
from api.debugging.moment import moment, owed_json
from api.debugging.patch import patched
from domain.conversation import Conversation as Aggregate
from domain.event_store import NewEvent
from domain.owes import owes
from domain.snapshots import dump
from domain.wire import conversation_of, decode, dumps
from infra.eventstoredb import EventStoreDBEventStore
from infra.postgres_event_store import PostgresEventStore
from projections.display_messages import DISPLAY_MESSAGES
from projections.messages import item_of
from projections.testing import fold_whole
from tests.support.eventstoredb import Double
from tests.support.model_script import says
from tests.support.random_log import random_log
from tests.support.slack import PATIENCE_S
from tests.support.system import System, system_over

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from domain.event_store import EventStore, StoredEvent
    from tests.support.model_server import ModelServer
    from tests.support.system import Conversation

RUNS = int(os.environ.get("REJOINDER_PROPERTY_RUNS", "5"))


@dataclass(frozen=True)
class Server:
    """An API without read models, and the log behind it."""

    system: System
    store: EventStore

    async def remembers(self, log: list[StoredEvent]) -> str:
        """Put a conversation into the log; return its path."""
        news = [NewEvent(event.event_id, event.type, event.data, event.metadata) for event in log]
        await self.store.append(log[0].stream, news, 0)
        return f"/v1/conversations/{conversation_of(log[0].stream)}"

    async def get(self, path: str, status: int = 200) -> Any:
        return await self.system.get(path, status=status)


@pytest.fixture(params=["postgres", "eventstoredb"])
async def server(request: pytest.FixtureRequest, database_url: str, model_server: ModelServer) -> AsyncIterator[Server]:
    async with AsyncExitStack() as stack:
        store: PostgresEventStore | EventStoreDBEventStore = PostgresEventStore(database_url)
        settings: dict[str, str] = {}
        if request.param == "eventstoredb":
            double = await stack.enter_async_context(Double())
            store, settings = EventStoreDBEventStore(double.uri), {"event_store": double.uri}
        system = await stack.enter_async_context(system_over(database_url, model_server, ("api",), **settings))
        yield Server(system, await stack.enter_async_context(store))


def local(log: list[StoredEvent]) -> list[StoredEvent]:
    """Let the conversation be that of a caller without a key."""
    started = dumps(json.loads(log[0].data) | {"tenant": "local", "owner": "local"})
    return [replace(log[0], data=started), *log[1:]]


def read_back(value: Any) -> Any:
    return from_json(to_json(value))


@given(seed=st.integers(0, 2**32))
@settings(
    max_examples=RUNS,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_d1_d2_each_state_is_the_fold_of_its_events_and_patches_lead_from_one_to_the_next(
    server: Server, seed: int
) -> None:
    log = local(random_log(random.Random(seed), steps=25))
    path = await server.remembers(log)
    conversation = Aggregate.at(decode(log[0]).originator_id)
    states = [read_back(dump(conversation))]
    steps: list[Any] = []
    cursor: int | None = 0
    while cursor is not None:
        page = await server.get(f"{path}/steps?after={cursor}&limit=7")
        steps += page["items"]
        cursor = page["next_cursor"]

    assert (await server.get(f"{path}/state?at=0"))["state"] == states[0]
    assert [step["seq"] for step in steps] == list(range(1, len(log) + 1))
    for event, step in zip(log, steps, strict=True):
        decoded = decode(event)
        states.append(read_back(dump(conversation.fold([decoded]))))
        owed = read_back(owed_json(owes(conversation, decoded.timestamp)))
        then = await server.get(f"{path}/state?at={event.seq}")
        assert then["state"] == states[-1] == patched(states[-2], step["patch"])
        assert then["owes"] == step["owes"] == owed
    rows = fold_whole(DISPLAY_MESSAGES, log).values()
    assert then["messages"] == read_back([item_of(row) for row in rows])
    assert (await server.get(f"{path}/state")) == then
    middle = len(log) // 2
    there = await server.get(f"{path}/diff?from={middle}")
    back = await server.get(f"{path}/diff?from={len(log)}&to={middle}")
    assert patched(states[middle], there["patch"]) == states[-1]
    assert patched(states[-1], back["patch"]) == states[middle]


async def test_a_seq_beyond_the_log_and_an_unknown_conversation_are_told_apart(server: Server) -> None:
    log = local(random_log(random.Random(1), steps=5))
    path = await server.remembers(log)

    for query, field in (("state?at=999", "at"), ("diff?from=999", "from"), ("diff?to=999", "to")):
        answer = await server.get(f"{path}/{query}", 422)
        assert answer["errors"] == [{"field": field, "message": f"is beyond the newest event, {len(log)}"}]
    assert await server.get(f"{path}/steps?after=999") == {"items": [], "next_cursor": None}
    for query in ("state", "diff", "steps"):
        await server.get(f"/v1/conversations/{log[0].event_id}/{query}", 404)


async def as_sent(conversation: Conversation, seq: int) -> Any:
    """Return the state at a reply once the audit has its request, which a slow database gets after the reply."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            then = await conversation.system.get(f"{conversation.path}/state?at={seq}")
            if then["working_set"]["exact"]:
                return then
            await asyncio.sleep(0.05)


async def test_the_context_is_exact_where_the_audit_kept_it_and_else_the_same_made_anew(
    database_url: str, model_server: ModelServer
) -> None:
    model_server.expect(says("It is noon."))
    model_server.expect(says("And now it is one."))
    async with system_over(database_url, model_server, audit="on") as system:
        conversation = await system.start("What time is it?", system_prompt="Be brief.")
        await conversation.turn_ends()
        await conversation.say("And now?")
        events = await conversation.turn_ends(2)
        replies = [event["data"]["context_seq"] for event in events if event["type"] == "assistant_msg"]
        exact = [await as_sent(conversation, seq) for seq in replies]
        between = await system.get(f"{conversation.path}/state")
        async with PostgresEventStore(database_url) as store:
            history = History(store, UUID(conversation.id))
            anew = [await moment(history, seq, default_model="openai/scripted") for seq in replies]

    sent = [received.body["messages"] for received in model_server.received]
    assert [then["working_set"]["messages"] for then in exact] == sent
    assert [then.working_set.messages for then in anew] == sent
    assert [then["working_set"]["exact"] for then in [*exact, between]] == [True, True, False]
    assert [then.working_set.exact for then in anew] == [False, False]
