"""What a hook gets to know about the model call that it stands before or after."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from domain.wire import dumps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from domain.scope import Scope
    from domain.usage import Usage


ProviderMessage = dict[str, Any]

_BEGINS = "Context from the system for its next reply, which the person does not see:\n\n"


def context_message(text: str) -> ProviderMessage:
    """Render what a hook adds: providers put system messages first, before what they have cached, so it is none."""
    return {"role": "user", "content": f"[{_BEGINS}{text}\n]"}


def is_context(message: Mapping[str, Any]) -> bool:
    """Say whether a message was rendered by `context_message`."""
    content = message.get("content")
    return isinstance(content, str) and content.startswith(f"[{_BEGINS}")


class Halt(Exception):
    """What a hook raises to end the turn: its message is recorded, for people to see."""


class HookContext:
    """A model call that is about to be made, or was: of this turn and step (both from 1), by `model`.

    `scope` is that of whom the turn answers, looked up now. `metadata` is the conversation's and the message's.
    """

    def __init__(
        self,
        *,
        conversation_id: UUID,
        turn: int,
        step: int,
        model: str,
        scope: Scope,
        metadata: Mapping[str, Any],
        request: Sequence[Mapping[str, Any]],
    ) -> None:
        """`request` is what the model sees but for what hooks add: it is copied as soon as somebody looks."""
        self.conversation_id, self.turn, self.step, self.model = conversation_id, turn, step, model
        self.scope, self.metadata, self._request = scope, metadata, request

    @cached_property
    def messages(self) -> list[dict[str, Any]]:
        """What the model sees but for what hooks add, in the format of OpenAI's chat completions: a copy."""
        copied: list[dict[str, Any]] = from_json(dumps(self._request))
        return copied

    @property
    def asked(self) -> str:
        """What people said last, as text."""
        said = next((message["content"] for message in reversed(self._request) if message["role"] == "user"), "")
        if isinstance(said, str):
            return said
        return "\n".join(part.get("text", "") for part in said if part["type"] == "text")


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A tool that the model wants to be called; `arguments` is the raw text it produced, perhaps no JSON."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Said:
    """A whole reply, before it is recorded."""

    text: str
    calls: tuple[RequestedCall, ...]
    model: str
    finish_reason: str
    usage: Usage | None
    latency_ms: int
