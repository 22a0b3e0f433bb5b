"""What a model is saying, in the stream: the text so far once, then deltas, and nothing of what is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from commands.agent.live import LiveAt
from tests.support.stream_nodes import Log

if TYPE_CHECKING:
    from tests.support.stream_nodes import Node


@pytest.fixture
async def log(here: Node) -> Log:
    """A conversation whose first turn waits for its model."""
    log = await Log(here.event_store).start()
    await log.say()
    await log.add("turn_started", turn=1, answers=["m1"], settings_seq=1)
    return log


def at(log: Log, **where: int) -> LiveAt:
    return LiveAt(log.id, **{"turn": 1, "step": 1, "attempt": 1, "try_": 1} | where)


async def test_w2_deltas_reach_clients_of_any_node_in_order(here: Node, there: Node, log: Log) -> None:
    async with here.follow(log) as one, there.follow(log) as two:
        for word in ("so ", "far ", "away"):
            here.live.publish(at(log), "text", word)
        for reader in (one, two):
            await reader.until_said("so far away")
            live = [event for event in reader.seen if event["event"] in ("partial", "delta")]
            assert all(event["id"] is None for event in live)
            assert live[-1]["data"].keys() == {"turn", "step", "attempt", "try", "index", "kind", "text"}
            assert reader.names.index("caught_up") < reader.names.index(live[0]["event"])


async def test_w2_connecting_mid_stream_gives_the_text_so_far_once_then_only_later_deltas(
    here: Node, there: Node, log: Log
) -> None:
    async with here.follow(log) as early:
        here.live.publish(at(log), "thinking", "hm")
        here.live.publish(at(log), "text", "once upon ")
        await early.until_said("once upon ")
        async with there.follow(log, after=log.seq) as late:
            await late.until_said("once upon ")
            here.live.publish(at(log), "text", "a time")
            await late.until_said("once upon a time")

    extras = late.seen[1:]
    assert late.seen[0]["event"] == "caught_up"
    assert [(e["data"]["kind"], e["data"]["text"]) for e in extras if e["data"]["text"]] == [
        ("thinking", "hm"),
        ("text", "once upon "),
        ("text", "a time"),
    ]
    assert extras[-1]["event"] == "delta"
    assert extras[-1]["data"]["index"] == extras[-2]["data"]["index"] + 1


async def test_w2_a_rerun_clears_the_text_first(here: Node, log: Log) -> None:
    async with here.follow(log) as reader:
        here.live.publish(at(log), "text", "broken off")
        await reader.until_said("broken off")
        here.live.restart(at(log, try_=2))
        cleared = await reader.until("partial", text="", kind="text", **{"try": 2})
        here.live.publish(at(log, try_=2), "text", "again")
        await reader.until_said("again")
    assert cleared["data"]["index"] == 0


async def test_w2_what_is_recorded_is_not_shown_live_any_more(here: Node, there: Node, log: Log) -> None:
    """Neither deltas that come late, nor a row that was left behind."""
    async with here.follow(log) as reader, there.follow(log) as watcher:
        here.live.publish(at(log), "text", "reply")
        await reader.until_said("reply")
        await watcher.until_said("reply")
        await log.reply(1)
        await reader.until("turn_ended")
        here.live.publish(at(log), "text", ", late")  # nobody has cleared
        here.live.publish(at(other := await Log(here.event_store).start()), "text", "sent later")
        async with here.follow(other) as sentinel:
            await sentinel.until_said("sent later")
        await log.say("next")
        await reader.until("user_msg")
        assert reader.names.count("delta") == sum(
            name == "delta" for name in reader.names[: reader.names.index("assistant_msg")]
        )
    async with there.follow(log, after=log.seq) as afterwards:
        await afterwards.until("caught_up")
        await log.say("and on")
        await afterwards.until("user_msg")
        assert afterwards.names == ["caught_up", "user_msg"]


async def test_w2_the_next_step_is_live_after_the_reply_of_the_one_before(here: Node, log: Log) -> None:
    async with here.follow(log) as reader:
        here.live.publish(at(log), "text", "I call a tool")
        await reader.until_said("I call a tool")
        await log.reply(1, 1, ends=False)
        await reader.until("assistant_msg")
        here.live.clear(log.id)
        here.live.restart(at(log, step=2))
        here.live.publish(at(log, step=2), "text", "and say")
        await reader.until_said("and say")
    assert reader.seen[-1]["data"]["step"] == 2
    assert reader.seen[-1]["data"]["index"] == 1


async def test_w2_losing_every_delta_loses_nothing_durable(
    here: Node, there: Node, log: Log, database_url: str
) -> None:
    async with there.follow(log) as reader:
        await reader.until("caught_up")
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("drop table live_turns")
            connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where query like 'listen%live%'")
        here.live.publish(at(log), "text", "never to be seen")
        await log.reply(1)
        await reader.until("turn_ended")
    assert reader.seqs == [1, 2, 3, 4, 5]
