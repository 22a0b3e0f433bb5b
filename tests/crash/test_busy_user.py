"""Somebody who goes on typing while the agent speaks: every message is answered and no model call is wasted.

Six messages during a reply of 3 s; with ``REJOINDER_LONG=1`` thirty during one of 30 s.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support.long_form import LONG
from tests.support.model_script import Rule, Step, gate, says
from tests.support.system import of_type, types
from tests.support.workers import assert_paid_once, front, workers

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer
    from tests.support.system import Event, System
    from tests.support.workers import Workers

__all__ = ["front", "workers"]

MESSAGES, EVERY_S = (30, 1.0) if LONG else (6, 0.5)
PIECES = 60


@pytest.mark.parametrize("when_busy", ["enqueue", "steer"])
async def test_l13_b1_b2_messages_during_a_long_reply_are_all_answered_and_no_model_call_is_wasted(
    front: System, workers: Workers, model_server: ModelServer, when_busy: str
) -> None:
    length_s = MESSAGES * EVERY_S
    pause = Step(pause_s=length_s / PIECES)
    pieces = [step for n in range(PIECES) for step in (Step(delta={"content": f"{n} "}), pause)]
    model_server.rule(
        Rule(answer=says(*pieces, gate("typed")), last_text="^Begin$"),
        # quick typing goes on during the second reply too
        Rule(answer=says("Short ", Step(pause_s=EVERY_S * 1.5), "and sweet")),
    )
    async with workers.one():
        conversation = await front.start("Begin", when_busy=when_busy)
        await model_server.requests(1)
        sent = ["Begin"]
        for n in range(MESSAGES + 3):
            await asyncio.sleep(EVERY_S)
            await conversation.say(f"Message {n}")
            sent.append(f"Message {n}")
            if len(sent) > MESSAGES:
                model_server.open("typed")  # however slow the typing was, it was during the first reply
        messages = len(sent)
        events = await conversation.until(lambda seen: _idle(seen, messages))
    assert_paid_once(events)
    replies = of_type(events, "assistant_msg")
    assert len(model_server.received) == len(replies), "a model call was wasted"
    assert all(request.closed_at is None for request in model_server.received)
    assert replies[0]["content"][0]["text"] == "".join(f"{n} " for n in range(PIECES)), "the reply is whole"
    assert {one["outcome"] for one in of_type(events, "turn_ended")} == {"completed"}
    last = [one["content"] for one in model_server.received[-1].body["messages"] if one["role"] == "user"]
    assert last == sent, "the model has seen every message, once, in order"
    print(f"{when_busy}: {messages} messages, {len(replies)} replies in {types(events).count('turn_started')} turns")
    assert len(replies) < messages


def _idle(seen: list[Event], messages: int) -> bool:
    """Whether all messages were said and seen by a reply, and no turn is open."""
    said = [event["seq"] for event in seen if event["type"] == "user_msg"]
    context = [one["context_seq"] for one in of_type(seen, "assistant_msg")]
    ended = types(seen).count("turn_ended") == types(seen).count("turn_started")
    return ended and len(said) == messages and bool(context) and context[-1] >= said[-1]
