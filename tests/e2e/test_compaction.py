"""What the model sees of a long conversation: summaries made beside the turns, with nothing else changed by them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.support.model_script import Rule, says
from tests.support.system import of_type

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer
    from tests.support.system import Conversation, System

SUMMARISES = Rule(answer=says("## Goal\nA trip.\n\n## Critical context\nThe code is 4711."), any_text="^You summarise")
LONG = "word " * 200


async def compacted(conversation: Conversation, *, summaries: int = 1) -> list[Any]:
    """Wait until so many summaries are shown, and return them."""
    while True:
        answer = await conversation.system.get(f"{conversation.path}/summaries")
        if len(answer["items"]) >= summaries:
            return list(answer["items"])


async def test_c3_a_turn_over_budget_is_followed_by_a_summary_that_the_next_turn_sees(
    system: System, model_server: ModelServer
) -> None:
    model_server.rule(SUMMARISES)
    conversation = await system.start(compaction={"budget_tokens": 800, "keep_recent_tokens": 400})
    for n in range(3):
        await conversation.say(f"{n} {LONG}")
        events = await conversation.turn_ends(n + 1)
    assert [ended.get("compact") for ended in of_type(events, "turn_ended")].count(True) >= 1
    await compacted(conversation)
    await conversation.say("and now?")
    events = await conversation.turn_ends(4)
    assert of_type(events, "turn_started")[-1]["summary_to_seq"]
    last = model_server.received[-1].body["messages"]
    assert "The code is 4711." in json.dumps(last)

    position = (await conversation.events())[-1]["position"]
    usage = await system.get(f"{conversation.path}/usage?min_position={position}")
    spent = [item for item in usage["items"] if item["purpose"] == "compaction"]
    assert [(item["turn"], item["model"], item["input_tokens"] > 0) for item in spent] == [
        (None, "openai/scripted", True)
    ]
    assert usage["total"] == (await system.get(conversation.path))["usage"]
    assert usage["total"]["calls"] == len(model_server.received)
