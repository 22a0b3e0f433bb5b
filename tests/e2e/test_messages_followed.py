"""What people see of a conversation, followed live and loaded at its end, through every way that a tool call goes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from tests.support.model_script import call, calls, says
from tests.support.slack import PATIENCE_S
from tests.support.system import of_type

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer
    from tests.support.system import Conversation, System

MAIL = {"to": "a@example.org", "body": "hi"}


async def test_r10_who_followed_live_has_the_messages_of_who_loads_at_the_end(
    system: System, model_server: ModelServer
) -> None:
    model_server.expect(
        says(
            "Working",
            calls(
                call("add", {"a": 1, "b": 2}, id="1", index=0),
                call("breaks", {}, id="2", index=1),
                call("nonsense", {}, id="3", index=2),
                *(call("send_email", MAIL, id=str(n), index=n) for n in (3, 4, 5)),
                call("ask_user", {"question": "Really?"}, id="6", index=6),
            ),
        ),
        says("Half", calls(call("send_email", MAIL, id="7"))),
    )
    conversation = await system.start("Everything that can happen")
    rows: dict[str, dict[str, Any]] = {}
    following = asyncio.create_task(follow(conversation, rows))

    suspended = [asked["tool_call_id"] for asked in of_type(await conversation.suspends(4), "suspension")]
    await conversation.resolve(suspended[0], "approve")
    await conversation.resolve(suspended[1], "edit", args=MAIL | {"body": "hello"})
    await conversation.resolve(suspended[2], "reject", reason="no")
    await conversation.say("by the way")
    await conversation.resolve(suspended[3], "answer", answer="yes")
    await conversation.suspends(5)
    await system.post(f"{conversation.path}/cancel", {}, status=202)
    await conversation.turn_ends(2)
    await system.post(f"{conversation.path}/end", {"reason": "done"}, status=200)

    async with asyncio.timeout(PATIENCE_S):
        await following
    loaded = await conversation.shown("messages", limit=200)
    assert loaded["items"] == sorted(rows.values(), key=lambda row: (row["seq"], row["sequence"]))
    statuses = {row["status"] for row in rows.values() if row["content_type"] == "tool_call"}
    assert statuses == {"completed", "failed", "rejected", "cancelled"}


async def follow(conversation: Conversation, rows: dict[str, dict[str, Any]]) -> None:
    """Keep the newest of each row until the conversation's end is shown."""
    url = f"{conversation.system.url}{conversation.path}/stream?view=messages"
    async with conversation.system.session.get(url) as response:
        assert response.status == 200
        name = ""
        async for line in response.content:
            if line.startswith(b"event: "):
                name = line.decode().removeprefix("event: ").strip()
            if line.startswith(b"data: ") and name == "message":
                row = json.loads(line.removeprefix(b"data: "))
                rows[row["id"]] = row
                if row["message_type"] == "system" and row["content"]["text"] == "The conversation was ended.":
                    return
