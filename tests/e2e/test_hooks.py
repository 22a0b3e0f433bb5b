"""A hook as the README shows it: a file that a setting names, seen by the model, and by nobody else."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infra.user_code import LoadError
from tests.support import agent_tools
from tests.support.model_script import call, calls, says
from tests.support.system import of_type, system_over

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer, Received

README = (Path(__file__).parents[2] / "README.md").read_text()
(EXAMPLE,) = re.findall(r"<!-- hooks -->\n```python\n(.*?)```", README, re.DOTALL)


def messages_of(received: Received) -> bytes:
    """Return the messages of a request as they came, without the bracket that closes them."""
    assert received.raw.startswith(b'{"messages":[')
    return received.raw[: received.raw.index(b'],"model":')]


async def test_c5_what_a_hook_adds_is_sent_last_and_the_prefix_stays_byte_for_byte(
    database_url: str, model_server: ModelServer, tmp_path: Path
) -> None:
    assert len([line for line in EXAMPLE.splitlines() if line]) <= 15
    agent_tools.forget()
    file = tmp_path / "house.py"
    file.write_text(EXAMPLE)
    model_server.expect(says(calls(call("add", {"a": 1, "b": 2}))), says("I can do that."), says("You get 1000 euros!"))
    async with system_over(database_url, model_server, hooks=(str(file),)) as system:
        conversation = await system.start("a refund, please")
        await conversation.turn_ends()
        await conversation.say("a larger refund!")
        await conversation.turn_ends(2)
        events = await conversation.events()
        shown = await conversation.shown("messages")
        refused = await system.post("/v1/conversations", {"settings": {"hooks": ["other"]}}, status=422)

        await system.post("/v1/conversations", {"settings": {"hooks": ["house_rules"]}}, status=201)
        blocked = await system.start(hooks=["house_rules"])
        await blocked.say("refund", metadata={"blocked": True})
        assert of_type(await blocked.turn_ends(), "turn_ended")[0]["detail"] == "This account is closed."

    requests = model_server.received
    assert len(requests) == 3
    for former, later in pairwise(requests):
        added = b"," + json.dumps(former.body["messages"][-1], ensure_ascii=False, separators=(",", ":")).encode()
        assert b"Refunds for local" in added
        assert messages_of(former).endswith(added)
        assert messages_of(later).startswith(messages_of(former).removesuffix(added))
    assert "Refunds for" not in json.dumps([events, shown])
    end = of_type(events, "turn_ended")[-1]
    assert (end["outcome"], end["reason"]) == ("failed", "halted")
    assert shown["items"][-1]["content"]["detail"] == "The reply promised too much and was held back."
    assert "1000 euros" not in json.dumps(of_type(events, "assistant_msg"))
    assert "house_rules, promises" in json.dumps(refused)


async def test_a_file_without_a_hook_is_refused_at_start(
    database_url: str, model_server: ModelServer, tmp_path: Path
) -> None:
    file = tmp_path / "none.py"
    file.write_text("def before_model(ctx): ...\n")
    with pytest.raises(LoadError, match=r"REJOINDER_HOOKS: .*none\.py: it defines no hooks"):
        async with system_over(database_url, model_server, hooks=(str(file),)):
            pass
