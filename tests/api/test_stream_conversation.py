"""The stream of a conversation: history, then live, on any node, after any interruption."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from domain.wire import stream_of
from tests.support.stream_nodes import Log, Node, node


async def test_w1_history_then_live_with_one_cursor_on_any_node(here: Node, there: Node, log: Log) -> None:
    await log.say("before")
    async with here.follow(log) as one, there.follow(log) as two:
        for reader in (one, two):
            assert (await reader.until("caught_up"))["data"] == {"seq": 2}
        await log.add("turn_started", turn=1, answers=["m1"], settings_seq=1)
        await log.reply(1, context_seq=3)
        for reader in (one, two):
            await reader.until("turn_ended")
            assert reader.seqs == [1, 2, 3, 4, 5]
            assert [event["id"] for event in reader.seen if event["id"]] == ["1", "2", "3", "4", "5"]


async def test_w1_an_event_has_the_fields_that_clients_rely_on(here: Node, log: Log) -> None:
    receipt = await log.say('hi\u2028 "there" é\n')
    async with here.follow(log, after=1) as reader:
        event = await reader.until("user_msg")
    assert event["data"].keys() == {"seq", "position", "conversation_id", "type", "occurred_at", "data", "metadata"}
    assert event["data"]["seq"] == 2
    assert event["data"]["position"] == receipt.position
    assert event["data"]["conversation_id"] == str(log.id)
    assert event["data"]["data"]["content"] == [{"type": "text", "text": 'hi\u2028 "there" é\n'}]
    assert event["data"]["occurred_at"] == event["data"]["metadata"]["occurred_at"]


async def test_w1_no_gap_and_no_duplicate_while_writers_write_and_clients_come_back(
    here: Node, there: Node, log: Log
) -> None:
    async def write() -> None:
        for _ in range(200):
            await log.say()

    async def follow_in_pieces(length: int) -> list[int]:
        seqs: list[int] = []
        nodes = [here, there]
        while not seqs or seqs[-1] < 201:
            nodes.reverse()
            last = str(seqs[-1]) if seqs else None
            async with nodes[0].follow(log, after=100_000 if last else 0, last_event_id=last) as reader:
                while len(reader.seqs) < length and (seqs + reader.seqs)[-1:] != [201]:
                    await reader.next()
                seqs += reader.seqs
        return seqs

    writing = asyncio.create_task(write())
    for seqs in await asyncio.gather(*(follow_in_pieces(length) for length in (7, 23, 58, 1000))):
        assert seqs == list(range(1, 202))
    await writing


async def test_w1_a_long_history_comes_in_order(here: Node, log: Log) -> None:
    for _ in range(5):
        await log.add_all([("user_msg", {"message_id": str(n), "content": []}) for n in range(500)])
    async with here.follow(log) as reader:
        await reader.until("caught_up", seq=2501)
    assert reader.seqs == list(range(1, 2502))


async def test_w1_last_event_id_wins_over_after(here: Node, log: Log) -> None:
    for _ in range(4):
        await log.say()
    async with here.follow(log, after=1, last_event_id="3") as reader:
        await reader.until("caught_up")
    assert reader.seqs == [4, 5]


async def test_r11_the_stream_works_the_moment_after_the_creation(here: Node, there: Node) -> None:
    headers = {"Authorization": "Bearer ada"}
    async with here.session.post(
        here.url + "/v1/conversations", json={"message": {"content": "hi"}}, headers=headers
    ) as r:
        assert r.status == 201
        path = r.headers["Location"]
    async with there.stream(path + "/stream") as reader:
        assert (await reader.until("caught_up"))["data"] == {"seq": 2}
    assert reader.names == ["conversation_started", "user_msg", "caught_up"]


async def test_c8_the_stream_says_what_a_reply_had_seen(here: Node, log: Log) -> None:
    """A message that came while the model spoke is shown as not seen, live and on replay."""
    await log.say("first")
    await log.add("turn_started", turn=1, answers=["m1"], settings_seq=1)
    async with here.follow(log) as live:
        await live.until("caught_up")
        await log.say("too late for this reply")
        await log.reply(1, context_seq=3, ends=False)
        reply = await live.until("assistant_msg")
    async with here.follow(log) as replayed:
        assert await replayed.until("assistant_msg") == reply
    message = next(event["data"] for event in live.seen if event["data"].get("seq") == 4)
    assert message["type"] == "user_msg"
    assert reply["data"]["data"]["context_seq"] < message["seq"]


async def test_p1_a_stream_that_is_not_yours_is_absent(here: Node, log: Log) -> None:
    foreign = await Log(here.event_store, owner="bob").start()
    erased = await Log(here.event_store).start()
    async with here.follow(erased) as reader:  # so that it is known
        await reader.until("caught_up")
    await here.event_store.delete(stream_of(erased.id))
    answers = []
    for conversation, by in (
        (log, "bob"),
        (log, "eve"),
        (foreign, "ada"),
        (erased, "ada"),
        (Log(here.event_store), "ada"),
    ):
        async with here.follow(conversation, by=by) as reader:
            headers = {name: value for name, value in reader.response.headers.items() if name != "X-Request-Id"}
            answers.append((reader.response.status, headers.pop("Date"), headers, await reader.response.text()))
    assert {status for status, *_ in answers} == {404}
    assert all(answer[2:] == answers[0][2:] for answer in answers)

    async with here.follow(foreign, by="root") as reader:
        await reader.until("caught_up")


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", "", str(2**63), "٣", "1\0"])
async def test_a_bad_after_is_named(here: Node, log: Log, cursor: str) -> None:
    async with here.follow(log, after=cursor) as reader:
        assert reader.response.status == 422
        assert [fault["field"] for fault in (await reader.response.json())["errors"]] == ["after"]


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", str(2**63), "9" * 5000])
async def test_a_bad_last_event_id_is_named(here: Node, log: Log, cursor: str) -> None:
    async with here.follow(log, last_event_id=cursor) as reader:
        assert reader.response.status == 422
        assert [fault["field"] for fault in (await reader.response.json())["errors"]] == ["Last-Event-ID"]


async def test_unknown_parameters_are_named(here: Node, log: Log) -> None:
    for path, field in (
        (f"/v1/conversations/{log.id}/stream?look=messages", "look"),
        (f"/v1/conversations/{log.id}/stream?view=rows", "view"),
        (f"/v1/conversations/{log.id}/stream?view=messages&view=events", "view"),
        ("/v1/stream?view=messages", "view"),
    ):
        async with here.stream(path) as reader:
            assert reader.response.status == 422
            assert [fault["field"] for fault in (await reader.response.json())["errors"]] == [field]


async def test_a_path_that_is_no_uuid_is_absent(here: Node) -> None:
    for name in ("x", "%00", str(uuid4())[:-1]):
        async with here.stream(f"/v1/conversations/{name}/stream") as reader:
            assert reader.response.status == 404


async def test_the_stream_ends_when_the_conversation_is_deleted(here: Node, there: Node, log: Log) -> None:
    async with here.follow(log) as one, there.follow(log) as two:
        await one.until("caught_up")
        await two.until("caught_up")
        await here.event_store.delete(stream_of(log.id))
        assert await one.rest() == await two.rest() == []


async def test_a_quiet_stream_says_that_it_is_there(database_url: str) -> None:
    async with node(database_url, keep_alive_s=0.01) as here:
        log = await Log(here.event_store).start()
        async with here.follow(log) as reader:
            await reader.until("caught_up")
            assert [(await reader.next() or {})["event"] for _ in range(3)] == [":"] * 3


async def test_a_server_that_stops_ends_its_streams_in_good_order(database_url: str, there: Node) -> None:
    log = await Log(there.event_store).start()
    async with node(database_url) as here:
        stream = here.follow(log)
        reader = await stream.__aenter__()
        own = here.stream("/v1/stream")
        own_reader = await own.__aenter__()
        await reader.until("caught_up")
        await own_reader.until("caught_up")
        reading = asyncio.gather(reader.rest(), own_reader.rest())
    assert await reading == [[], []]
    await stream.__aexit__(None, None, None)
    await own.__aexit__(None, None, None)
