"""Forks from outside: a message is edited and sent again, and both conversations know of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support import agent_tools
from tests.support.long_conversations import AGREES, SUMMARISES, SUMMARY, of_turns, summaries, talked
from tests.support.model_script import call, calls, says
from tests.support.system import Conversation, of_type, types

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer
    from tests.support.system import System


async def forked(conversation: Conversation, body: dict[str, Any], *, status: int = 201, key: str = "") -> Any:
    """Fork a conversation; return the answer."""
    headers = {"Idempotency-Key": key} if key else {}
    return await conversation.system.post(f"{conversation.path}/fork", body, status=status, headers=headers)


def texts(body: dict[str, Any]) -> list[Any]:
    """Return who said what in a model's request."""
    return [(message["role"], message.get("content")) for message in body["messages"] if message["role"] != "system"]


async def test_a_message_is_edited_and_sent_again_in_one_call(system: System, model_server: ModelServer) -> None:
    model_server.expect(says(calls(call("add", {"a": 1, "b": 2}))), says("It is 3"), says("Sent to Bob"))
    conversation = await system.start("Add 1 and 2")
    await conversation.turn_ends()
    await conversation.say("Tell Bob", message_id="wrong")
    await conversation.turn_ends(2)
    source = await conversation.events()
    runs = len(agent_tools.runs)

    model_server.expect(says("Sent to Ada"))
    body = {"before_message": "wrong", "message": {"content": "Tell Ada"}, "title": "To Ada"}
    answer = await forked(conversation, body, key="k")
    assert await forked(conversation, body, key="k") == answer
    fork = Conversation(system, answer["conversation_id"])
    events = await fork.turn_ends(2)
    assert texts(model_server.received[-1].body) == [
        ("user", "Add 1 and 2"),
        ("assistant", None),
        ("tool", "3"),
        ("assistant", "It is 3"),
        ("user", "Tell Ada"),
    ]
    assert len(agent_tools.runs) == runs, "nothing that was copied ran again"
    shared = types(source).index("user_msg", 2)
    assert types(events) == [
        *types(source[:shared]),
        "fork_completed", "conversation_changed", "user_msg", "turn_started", "assistant_msg", "turn_ended",
    ]  # fmt: skip
    assert [event["data"] for event in events[1:shared]] == [event["data"] for event in source[1:shared]]
    assert [event["metadata"]["copied_from"] for event in events[1:shared]] == [
        event["metadata"]["event_id"] for event in source[1:shared]
    ]
    assert await conversation.events() == source

    position = f"?min_position={events[-1]['position']}"
    new, old = await system.get(fork.path + position), await system.get(conversation.path + position)
    assert (new["forked_from"], new["forked_seq"], new["title"]) == (conversation.id, shared, "To Ada")
    assert [(one["conversation_id"], one["forked_seq"]) for one in old["forks"]] == [(fork.id, shared)]
    assert (new["usage"]["calls"], old["usage"]["calls"]) == (1, 3)
    mine = await system.get(f"{fork.path}/usage{position}")
    assert [(item["turn"], item["calls"]) for item in mine["items"]] == [(2, 1)]
    shown = [await system.get(f"{one.path}/messages{position}") for one in (fork, conversation)]
    same, whole = ([(item["content"], item["occurred_at"]) for item in page["items"]] for page in shown)
    assert same[:3] == whole[:3]
    assert [item["content"]["text"] for item in shown[0]["items"][-2:]] == ["Tell Ada", "Sent to Ada"]


async def test_a_fork_begins_between_turns_of_ones_own_conversation(system: System, model_server: ModelServer) -> None:
    conversation = await system.start("Hello")
    events = await conversation.turn_ends()
    for seq in (3, 4):
        refused = await forked(conversation, {"at_seq": seq}, status=409)
        assert refused["type"] == "urn:rejoinder:cuts-turn"
    for body, field in (({"at_seq": 99}, "at_seq"), ({}, "at_seq"), ({"before_message": "no"}, "before_message")):
        refused = await forked(conversation, body, status=422)
        assert refused["errors"][0]["field"] == field
    again = await forked(conversation, {"at_seq": 2})
    answered = await Conversation(system, again["conversation_id"]).turn_ends()
    assert types(answered) == [*types(events[:2]), "fork_completed", *types(events[2:])]


async def test_c2_the_summaries_of_what_is_copied_go_along(system: System, model_server: ModelServer) -> None:
    model_server.rule(SUMMARISES, AGREES)
    conversation = await talked(system, 3)
    [summary] = await summaries(conversation)
    last = (await conversation.events())[-1]["seq"]
    answer = await forked(conversation, {"at_seq": last, "message": {"content": "and now?"}})
    fork = Conversation(system, answer["conversation_id"])
    events = await fork.turn_ends(4)
    assert of_type(events, "turn_started")[-1]["summary_to_seq"] == summary["to_seq"]
    assert SUMMARY in of_turns(model_server)[-1].body["messages"][0]["content"]
    [copied] = await summaries(fork)
    assert copied == {**summary, "conversation_id": fork.id}
    usage = await system.get(f"{fork.path}/usage?min_position={events[-1]['position']}")
    assert [item["calls"] for item in usage["items"] if item["purpose"] == "turn"] == [1]
