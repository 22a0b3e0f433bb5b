"""What tests do with a model: make one try and look at all that came of it."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from commands.agent.model import Delta, ModelError, ModelReply, ModelRequest

if TYPE_CHECKING:
    from commands.agent.model import Model

LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def request(text: str = "hello", *, model: str = "openai/scripted", **given: Any) -> ModelRequest:
    """Make a request of one user message."""
    return ModelRequest(model, [{"role": "user", "content": text}], **given)


async def reply_of(model: Model, asked: ModelRequest | None = None) -> tuple[list[Delta], ModelReply]:
    """Make a try that must succeed; return its deltas and its reply."""
    deltas: list[Delta] = []
    async with aclosing(model.stream(asked or request())) as stream:
        async for item in stream:
            if isinstance(item, ModelReply):
                return deltas, item
            if isinstance(item, Delta):
                deltas.append(item)
    raise AssertionError("the stream ended without a reply")


async def failure_of(model: Model, asked: ModelRequest | None = None) -> ModelError:
    """Make a try that must fail; return its error."""
    with pytest.raises(ModelError) as raised:
        await reply_of(model, asked)
    return raised.value
