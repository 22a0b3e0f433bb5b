"""A cursor that a stream cannot have given is refused: its client would wait for ever for what it says it has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.stream_nodes import Log, Node


@pytest.mark.parametrize("view", ["events", "messages"])
async def test_w1_a_cursor_beyond_the_conversation_is_named(here: Node, there: Node, log: Log, view: str) -> None:
    await log.say()
    for beyond, field in (({"after": 3}, "after"), ({"after": 1, "last_event_id": "3"}, "Last-Event-ID")):
        async with there.follow(log, view=view, **beyond) as reader:
            assert reader.response.status == 422
            fault = {"field": field, "message": "is beyond the newest event, 2"}
            assert (await reader.response.json())["errors"] == [fault]
    async with there.follow(log, view=view, after=2) as reader:
        assert (await reader.until("caught_up"))["data"] == {"seq": 2}


async def test_w1_a_cursor_beyond_the_log_is_named(here: Node, there: Node, log: Log) -> None:
    end = (await log.say()).position
    for beyond, field in (({"after": end + 1}, "after"), ({"last_event_id": str(end + 1)}, "Last-Event-ID")):
        async with there.stream("/v1/stream", **beyond) as reader:
            assert reader.response.status == 422
            fault = {"field": field, "message": f"is beyond the newest event, {end}"}
            assert (await reader.response.json())["errors"] == [fault]
    async with there.stream("/v1/stream", after=end) as reader:
        assert (await reader.until("caught_up"))["data"] == {"position": end}


async def test_p1_a_foreign_conversation_is_absent_whatever_the_cursor(here: Node, log: Log) -> None:
    async with here.follow(log, after=100, by="eve") as reader:
        assert reader.response.status == 404
