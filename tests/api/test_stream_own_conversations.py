"""The stream of all of a caller's conversations: merged by position, then live, whatever the read model lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from domain.wire import stream_of
from tests.support.stream_nodes import Log, project

if TYPE_CHECKING:
    from tests.support.stream_nodes import Node, SseReader


def positions(reader: SseReader) -> list[int]:
    found = [event["data"]["position"] for event in reader.seen if event["id"] is not None]
    assert found == [int(event["id"]) for event in reader.seen if event["id"] is not None]
    return found


async def talk(node: Node, owners: str = "ada ada bob ada") -> tuple[list[Log], list[int]]:
    """Let conversations of these owners take turns; return them, and the positions of ada's events."""
    logs = [await Log(node.event_store, owner=owner).start() for owner in owners.split()]
    for _ in range(5):
        for log in logs:
            await log.say()
    own = {stream_of(log.id) for log in logs if log.owner == "ada"}
    return logs, [event.position for event in await node.event_store.read_all(0, limit=1000) if event.stream in own]


@pytest.mark.parametrize("projected", ["before", "between", "never"])
async def test_w1_history_and_live_of_ones_own_come_merged_on_any_node(
    here: Node, there: Node, database_url: str, projected: str
) -> None:
    if projected == "before":
        await project(database_url)
    _, first = await talk(here)
    if projected == "between":
        await project(database_url)
    logs, second = await talk(here)
    expected = first + [position for position in second if position > first[-1]]
    async with here.stream("/v1/stream") as one, there.stream("/v1/stream") as two:
        for reader in (one, two):
            reached = (await reader.until("caught_up"))["data"]["position"]
            assert positions(reader) == expected
            assert reached >= expected[-1]
        new = await Log(there.event_store).start()
        await logs[2].say("bob's own")
        live = [new.position, (await new.say()).position, (await logs[0].say()).position]
        for reader in (one, two):
            while positions(reader) != expected + live:
                assert await reader.next() is not None


async def test_w1_it_resumes_after_any_position(here: Node, database_url: str) -> None:
    _, own = await talk(here)
    await project(database_url)
    for after in (0, own[0] - 1, own[3], own[-2], own[-1]):
        async with here.stream("/v1/stream", last_event_id=str(after)) as reader:
            await reader.until("caught_up")
            assert positions(reader) == [position for position in own if position > after]


async def test_p1_others_do_not_appear_not_even_to_an_admin(here: Node, database_url: str) -> None:
    await talk(here)
    await project(database_url)
    await talk(here)
    for caller in ("root", "eve"):
        async with here.stream("/v1/stream", by=caller) as reader:
            await reader.until("caught_up")
            assert positions(reader) == []


async def test_a_deleted_conversation_is_not_in_the_history_any_more(here: Node, database_url: str) -> None:
    logs, own = await talk(here, "ada ada")
    await project(database_url)
    await here.event_store.delete(stream_of(logs[0].id))
    async with here.stream("/v1/stream") as reader:
        await reader.until("caught_up")
        assert positions(reader) == own[1::2]
        await here.event_store.delete(stream_of(logs[1].id))
        last = await Log(here.event_store).start()
        await reader.until("conversation_started", conversation_id=str(last.id))
        assert positions(reader) == [*own[1::2], last.position]


@pytest.mark.parametrize("query", ["after=x", "after=-1", "view=messages", "after=1&after=2"])
async def test_bad_parameters_are_named(here: Node, query: str) -> None:
    async with here.stream(f"/v1/stream?{query}") as reader:
        assert reader.response.status == 422
        assert (await reader.response.json())["errors"][0]["field"] == query.partition("=")[0]
