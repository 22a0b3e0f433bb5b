"""What really reaches the model's server, and what it costs: parts, marks, stubs, room made, read models ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from psycopg import AsyncConnection

from infra.litellm_library import load_litellm
from tests.support import agent_tools
from tests.support.long_conversations import (
    AGREES,
    SUMMARISES,
    SUMMARY,
    TIGHT,
    compacted,
    is_summary,
    of_turns,
    paired,
    rebuilt,
    summaries,
    talked,
)
from tests.support.model_script import (
    Rule,
    call,
    calls,
    context_window_exceeded,
    drop,
    fails,
    hang,
    says,
    text_of,
)
from tests.support.system import of_type, system_over, types

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.model_server import ModelServer
    from tests.support.system import System

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
DEAR, CHEAP = "openai/gpt-4o", "openai/gpt-4o-mini"
DEARER = {"input_cost_per_token": 1.0}


async def test_parts_of_a_message_reach_the_model_as_they_are_and_its_summariser_by_name(
    system: System, model_server: ModelServer
) -> None:
    model_server.rule(SUMMARISES, AGREES)
    conversation = await system.start(compaction=TIGHT)
    content = [{"type": "text", "text": "Look at this"}, IMAGE]
    await system.post(f"{conversation.path}/messages", {"content": content}, status=202)
    await conversation.turn_ends()
    [message] = of_turns(model_server)[0].body["messages"]
    assert message["content"] == content
    await system.post(f"{conversation.path}/compact", {}, status=202)
    await summaries(conversation)
    [asked] = filter(is_summary, model_server.received)
    assert "User: Look at this\n[image_url]" in text_of(asked.body["messages"][1])


async def test_b5_a_cancelled_reply_is_marked_for_the_model_and_so_it_is_for_the_summariser(
    system: System, model_server: ModelServer
) -> None:
    model_server.rule(SUMMARISES, AGREES)
    model_server.expect(says("Once upon ", hang()))
    conversation = await system.start("Tell me " + "all " * 100)
    async with system.session.get(f"{system.url}{conversation.path}/stream") as stream:
        async for line in stream.content:
            if b"Once upon" in line:
                break
    await system.post(f"{conversation.path}/cancel", {}, status=202)
    await conversation.say("Shorter")
    await conversation.turn_ends(2)
    told = [text_of(message) for message in of_turns(model_server)[-1].body["messages"]]
    assert told[1:] == ["Once upon ", "[The reply above was cut off: the turn was cancelled.]", "Shorter"]
    await system.post(f"{conversation.path}/compact", {}, status=202)
    await summaries(conversation)
    [asked] = filter(is_summary, model_server.received)
    assert "Assistant: Once upon \n\nUser: [The reply above was cut off" in text_of(asked.body["messages"][1])


async def test_c5_a_turn_that_alone_exceeds_the_window_loses_results_then_fails_and_the_next_one_works(
    system: System, model_server: ModelServer
) -> None:
    conversation = await system.start(compaction={"budget_tokens": 100_000})
    agent_tools.gates[big := "x" * 3_000].set()
    model_server.rule(AGREES)
    wants = says(calls(call("wait_for", {"gate": big})))
    too_long = context_window_exceeded()
    model_server.expect(wants, wants, too_long, too_long, too_long)
    await conversation.say("Read it all")
    [ended] = of_type(await conversation.turn_ends(), "turn_ended")
    assert (ended["outcome"], ended["reason"], ended["compact"]) == ("failed", "context_window", True)
    tried = [one.body["messages"] for one in of_turns(model_server)[2:]]
    left_out = [["left out" in text_of(m) for m in messages if m["role"] == "tool"] for messages in tried]
    assert left_out == [[False, False], [True, False], [True, True]]
    assert all(map(paired, tried))
    assert "Call the tool again to see it" in text_of(tried[1][2])

    await conversation.say("And now?")
    assert of_type(await conversation.turn_ends(2), "turn_ended")[1]["outcome"] == "completed"
    assert not any("left out" in text_of(m) for m in of_turns(model_server)[-1].body["messages"]), "that was for once"


async def test_a_window_that_stays_exceeded_is_made_room_in_once_in_each_turn(
    system: System, model_server: ModelServer
) -> None:
    model_server.rule(SUMMARISES, Rule(answer=context_window_exceeded(), last_text="^Too long"), AGREES)
    conversation = await talked(system, 4, budget_tokens=100_000, keep_recent_tokens=20_000)
    await conversation.say("Too long")
    events = await conversation.turn_ends(5)
    ended = of_type(events, "turn_ended")[-1]
    assert (ended["outcome"], ended["reason"]) == ("failed", "context_window")
    assert types(events).count("turn_resumed") == 1
    assert len([one for one in model_server.received if is_summary(one)]) == 1
    await conversation.say("And now?")
    assert of_type(await conversation.turn_ends(6), "turn_ended")[-1]["outcome"] == "completed"


async def test_c2_what_the_read_model_says_of_summaries_is_nothing_to_a_turn(
    system: System, model_server: ModelServer, database_url: str
) -> None:
    model_server.rule(SUMMARISES, AGREES)
    conversation = await talked(system, 3)
    await compacted(conversation, database_url)
    made = await summaries(conversation)
    async with await AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute("update summaries set content = 'Lies', to_seq = to_seq + 1, status = 'revoked'")
    await conversation.say("and now?")
    events = await conversation.turn_ends(4)
    assert of_type(events, "turn_started")[-1]["summary_to_seq"] == made[-1]["to_seq"]
    assert SUMMARY in text_of(of_turns(model_server)[-1].body["messages"][0])
    await rebuilt(system, "summaries")
    assert await summaries(conversation) == made


async def test_t9_a_summary_is_asked_for_again_when_the_provider_fails_and_paid_for_each_time(
    system: System, model_server: ModelServer
) -> None:
    conversation = await talked(system, 2)
    model_server.expect(fails(500, retry_after="0"), says("## Goal\nHal", drop()), says(SUMMARY))
    await system.post(f"{conversation.path}/compact", {}, status=202)
    [summary] = await summaries(conversation)
    assert summary["content"] == SUMMARY
    assert len([one for one in model_server.received if is_summary(one)]) == 3


async def test_c7_summaries_titles_and_turns_are_in_the_total_and_new_prices_change_nothing_that_was_recorded(
    database_url: str, model_server: ModelServer, price_list: dict[str, Any]
) -> None:
    tokens = {"prompt_tokens": 1_000, "completion_tokens": 100, "total_tokens": 1_100}
    cheap = Rule(answer=says(SUMMARY, usage=tokens), any_text="^You summarise")
    title = Rule(answer=says("A trip", usage=tokens), model="gpt-4o-mini")
    model_server.rule(cheap, title, Rule(answer=says("Yes.", usage=tokens)))
    async with system_over(database_url, model_server, compaction_model=CHEAP) as system:
        conversation = await talked(system, 3, settings={"model": DEAR})
        await compacted(conversation, database_url)
        await conversation.until(lambda seen: "conversation_changed" in types(seen))
        before = await conversation.shown("usage")
        used = [(item["purpose"], item["turn"], item["model"]) for item in before["items"]]
        assert [one for one in used if one[0] != "title"] == [
            ("turn", 1, DEAR), ("turn", 2, DEAR), ("turn", 3, DEAR), ("compaction", None, CHEAP),
        ]  # fmt: skip
        assert ("title", None, CHEAP) in used, "which is recorded beside the turns, whenever it comes"
        received = len(model_server.received)
        assert (before["total"]["calls"], before["total"]["input_tokens"]) == (received, 1_000 * received)
        assert before["total"]["cost_usd"] == pytest.approx(sum(item["cost_usd"] for item in before["items"]))

        load_litellm().register_model({"gpt-4o": price_list | DEARER})
        for name in ("usage", "conversations"):
            await rebuilt(system, name)
        assert await conversation.shown("usage") == before
        assert (await conversation.shown())["usage"] == before["total"]
        await conversation.say("and now?")
        await conversation.turn_ends(4)
        assert (await conversation.shown("usage"))["total"]["cost_usd"] > before["total"]["cost_usd"] + 1_000


@pytest.fixture
def price_list() -> Iterator[dict[str, Any]]:
    """What is known of the dear model; it is known again after the test."""
    known = dict(load_litellm().model_cost["gpt-4o"])
    yield known
    load_litellm().register_model({"gpt-4o": known})
