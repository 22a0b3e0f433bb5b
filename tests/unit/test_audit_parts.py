"""Requests taken apart for the audit: their parts, the stubs among them, and what hooks redact."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from commands.agent.audit import CallAbout, audited
from commands.agent.model import ModelRequest
from domain.events import ToolResult
from domain.hooks import HookDefinitionError, before_audit, marked_hook
from domain.parts import text_part
from domain.provider_messages import left_out, tool_message
from domain.scope import SYSTEM
from infra.audit_parts import Note, Prepared, prepared
from tests.support.agents import ScriptedModel
from tests.support.given import NOW

if TYPE_CHECKING:
    from collections.abc import Callable

ABOUT = CallAbout(conversation_id=uuid4(), purpose="turn")


async def taken_apart(*messages: dict[str, Any], redact: Callable[..., Any] | None = None) -> Prepared:
    hook = marked_hook(redact)
    request = ModelRequest("m", messages, [{"type": "function"}], {"seed": 1})
    return await prepared(Note(uuid4(), ABOUT, 1, request, datetime.now(UTC)), [hook] if hook else [])


def result(call: str, text: str) -> ToolResult:
    return ToolResult(
        originator_id=ABOUT.conversation_id,
        originator_version=1,
        timestamp=NOW,
        actor=SYSTEM,
        tool_call_id=call,
        status="ok",
        content=[text_part(text)],
    )


def says(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def test_equal_parts_have_equal_hashes_and_any_text_can_be_kept() -> None:
    one = await taken_apart(says("hello"), says("hello"), says("a lone \ud800 surrogate"))
    two = await taken_apart(says("hello"))
    assert one.messages[0] == one.messages[1] == two.messages[0]
    assert one.messages[0].body == '{"role":"user","content":"hello"}'
    assert (one.tools, one.params) == (two.tools, two.params)
    assert (one.tools.body, one.params.body) == ('[{"type":"function"}]', '{"seed":1}')
    assert "a lone ? surrogate" in one.messages[2].body


async def test_c5_results_that_were_cut_or_left_out_are_named() -> None:
    whole, cut = tool_message(result("c1", "short"), 100), tool_message(result("c2", "long " * 100), 100)
    gone = left_out(tool_message(result("c3", "long " * 100)))
    kept = await taken_apart(says("[Cut off here: 5 bytes in all."), whole, cut, gone)
    assert (kept.left_out, kept.cut_off, kept.redacted) == (["c3"], ["c2"], False)


@before_audit
def _shout(message: dict[str, Any]) -> dict[str, Any]:
    message["content"] = message["content"].upper()
    return message


@before_audit
def _forget(message: dict[str, Any]) -> Any:
    return None


async def test_c6_a_hook_redacts_a_copy() -> None:
    message = says("secret")
    kept = await taken_apart(message, redact=_shout)
    assert kept.redacted
    assert kept.messages[0].body == '{"role":"user","content":"SECRET"}'
    assert message == says("secret")


async def test_c6_what_a_hook_does_not_redact_in_time_or_to_a_message_is_not_kept() -> None:
    release = threading.Event()

    @before_audit(timeout_s=0.01)
    def stuck(message: dict[str, Any]) -> dict[str, Any]:
        release.wait()
        return message

    for redact, why in ((stuck, "stuck failed (TimeoutError)"), (_forget, "_forget failed (TypeError)")):
        kept = await taken_apart(says("secret"), says("another"), redact=redact)
        assert [part.body for part in kept.messages] == [
            f'{{"role":"user","content":"[Not kept: the hook {why}.]"}}',
        ] * 2
    release.set()


def test_a_hook_that_redacts_is_a_plain_function() -> None:
    async def later(message: dict[str, Any]) -> dict[str, Any]:
        return message

    with pytest.raises(HookDefinitionError, match="plain function"):
        before_audit(later)


def test_c6_without_an_audit_a_call_goes_straight_to_the_model() -> None:
    model = ScriptedModel()
    assert audited(model, None, ABOUT) is model
