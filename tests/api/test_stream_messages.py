"""`view=messages`: the stream of a conversation as display rows, each again when it changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from commands.agent.live import LiveAt
from domain.wire import stream_of

if TYPE_CHECKING:
    from tests.support.stream_nodes import Log, Node, SseReader


async def turn(log: Log, number: int) -> None:
    """Append what a turn with a tool that needs an approval is made of, beginning with a message."""
    said = f"m{log.seq}"
    call = {"tool_call_id": f"c{number}"}
    await log.say(f"question {number}")
    await log.add("turn_started", turn=number, answers=[said], settings_seq=1)
    await log.add_all(
        [
            ("assistant_msg", {**SAID, "turn": number, "step": 1, "context_seq": log.seq}),
            ("tool_call", {**call, "turn": number, "name": "t", "args": {}, "executor": "server", "gated": True}),
            ("suspension", {**call, "kind": "approval", "prompt": "?"}),
        ]
    )
    await log.add("resolution", **call, outcome="approved", by={"kind": "user", "id": "ada"})
    await log.add("tool_result", **call, status="ok", content=[{"type": "text", "text": "done"}])
    await log.reply(number, 2, context_seq=log.seq)


SAID: dict[str, Any] = {
    "attempt": 1,
    "content": [{"type": "thinking", "text": "hm"}, {"type": "text", "text": "I shall"}],
    "model": "m",
    "finish_reason": "tool_calls",
}


def shown(reader: SseReader) -> dict[str, dict[str, Any]]:
    """Return the rows as a client has them that keeps the newest of each id."""
    return {event["data"]["id"]: event["data"] for event in reader.seen if event["event"] == "message"}


async def test_w1_r10_messages_are_told_again_as_they_change_on_any_node(here: Node, there: Node, log: Log) -> None:
    async with here.follow(log, view="messages") as live:
        assert (await live.until("caught_up"))["data"] == {"seq": 1}
        await turn(log, 1)
        await live.until("message", content_type="tool_result")
    call = [event for event in live.seen if event["data"].get("content_type") == "tool_call"]
    assert [event["data"]["status"] for event in call] == ["executing", "awaiting_input", "executing", "completed"]
    assert len({event["data"]["id"] for event in call}) == 1
    assert {event["event"] for event in live.seen} == {"message", "caught_up"}
    assert [event["data"]["status"] for event in live.seen[1:3]] == ["pending", "completed"]

    async with there.follow(log, view="messages") as late:
        assert (await late.until("caught_up"))["data"] == {"seq": log.seq}
    assert shown(late) == shown(live)


async def test_w1_only_the_last_message_of_an_event_has_its_id(here: Node, log: Log) -> None:
    await turn(log, 1)
    async with here.follow(log, view="messages") as reader:
        await reader.until("caught_up")
    told = [(event["data"]["seq"], event["id"]) for event in reader.seen if event["event"] == "message"]
    assert told == [(2, "2"), (2, "3"), (4, None), (4, "4"), (5, "5"), (5, "6"), (5, "7"), (5, None), (8, "8")]


async def test_w1_who_comes_back_anywhere_misses_nothing_and_hears_nothing_twice(
    here: Node, there: Node, log: Log
) -> None:
    async def write() -> None:
        for number in range(1, 21):
            await turn(log, number)

    async def follow_in_pieces(length: int) -> dict[str, dict[str, Any]]:
        rows: dict[str, dict[str, Any]] = {}
        ids: list[int] = []
        nodes = [here, there]
        while not ids or ids[-1] < 1 + 20 * 9 - 2:  # the last reply has no parts, and its turn's end shows nothing
            nodes.reverse()
            last = str(ids[-1]) if ids else None
            async with nodes[0].follow(log, view="messages", last_event_id=last) as reader:
                for _ in range(length):
                    event = await reader.next()
                    assert event is not None
                    if event["event"] == "message":
                        rows[event["data"]["id"]] = event["data"]
                    if event["id"]:
                        ids.append(int(event["id"]))
                    if ids and ids[-1] >= 1 + 20 * 9 - 2:
                        break
        assert ids == sorted(set(ids))
        return rows

    writing = asyncio.create_task(write())
    followed = await asyncio.gather(*(follow_in_pieces(length) for length in (6, 17, 1000)))
    await writing
    async with here.follow(log, view="messages") as reader:
        await reader.until("caught_up")
    assert all(rows == shown(reader) for rows in followed)


async def test_w2_what_the_model_is_saying_comes_beside_the_messages(here: Node, there: Node, log: Log) -> None:
    await log.say()
    await log.add("turn_started", turn=1, answers=["m1"], settings_seq=1)
    at = LiveAt(log.id, turn=1, step=1, attempt=1, try_=1)
    async with there.follow(log, view="messages", after=log.seq) as reader:
        await reader.until("caught_up")
        here.live.publish(at, "text", "so far")
        while not any(event["data"].get("text") == "so far" for event in reader.seen):
            assert await reader.next()
        await log.add("assistant_msg", **SAID, turn=1, step=1, context_seq=3)
        await reader.until("message", content_type="text")
    assert [event["data"]["content_type"] for event in reader.seen if event["event"] == "message"] == [
        "thinking",
        "text",
    ]


async def test_p3_the_messages_end_when_the_conversation_is_deleted(here: Node, there: Node, log: Log) -> None:
    await turn(log, 1)
    async with here.follow(log, view="messages") as one, there.follow(log, view="messages", after=6) as two:
        await one.until("caught_up")
        await two.until("caught_up")
        await here.event_store.delete(stream_of(log.id))
        assert await one.rest() == await two.rest() == []
