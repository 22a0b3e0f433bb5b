"""Assembles a reply from LiteLLM's chunks: text, thinking with its signatures, images, tool calls.

LiteLLM's own `stream_chunk_builder` joins all fragments of one index into one call; servers exist that give every
call the index 0, or no index, and the same id or none. So calls are told apart here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from commands.agent.model import Delta, ToolRequest
from domain.parts import Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SIGNATURE_IN_ID = "__thought__"
"""Behind it LiteLLM repeats Gemini's signature in a call's id, for clients that keep nothing else of it."""
HOSTED_ID = "srvtoolu_"
"""Begins Anthropic's ids of tools that its own host runs; LiteLLM streams them like calls of ours."""


@dataclass(slots=True)
class _Spoken:
    """A text or thinking part in the making; after a closed one a new one begins."""

    kind: Literal["text", "thinking"]
    pieces: list[str] = field(default_factory=list)
    provider_data: dict[str, Any] | None = None
    closed: bool = False


@dataclass(slots=True)
class _Call:
    """A tool call in the making."""

    name: str
    provider_id: str | None = None
    pieces: list[str] = field(default_factory=list)
    provider_data: dict[str, Any] | None = None

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    @property
    def hosted(self) -> bool:
        return (self.provider_id or "").startswith(HOSTED_ID)

    def is_whole(self) -> bool:
        try:
            json.loads(self.arguments)
        except ValueError:
            return False
        return True


class ReplyAssembly:
    """What has come of one reply so far."""

    def __init__(self) -> None:
        self._said: list[_Spoken | Part] = []
        self._calls: list[_Call] = []
        self._current: dict[int, _Call] = {}

    def add(self, delta: Any) -> Iterator[Delta]:
        """Take the delta of one chunk (of LiteLLM's type) in, and yield what people can watch of it."""
        blocks = getattr(delta, "thinking_blocks", None)
        reasoning = getattr(delta, "reasoning_content", None)
        if blocks:
            for block in blocks:
                yield from self._add_thinking(block)
        elif isinstance(reasoning, str) and reasoning:
            yield self._say("thinking", reasoning)
        content = getattr(delta, "content", None)
        if isinstance(content, str) and content:
            yield self._say("text", content)
        for image in getattr(delta, "images", None) or ():
            self._said.append(Part(type="image_url", image_url={"url": image["image_url"]["url"]}))
        self._add_calls(getattr(delta, "tool_calls", None) or ())

    def content(self) -> list[Part]:
        """Return the parts in the order in which they began; what the provider's host ran comes last.

        The `provider_data` of a thinking part is the provider's thinking block without its text: the two together
        are what goes back.
        """
        return [
            Part(type=said.kind, text="".join(said.pieces), provider_data=said.provider_data)
            if isinstance(said, _Spoken)
            else said
            for said in self._said
        ] + [
            Part(
                type="hosted_tool",
                data={"name": call.name, "arguments": call.arguments},
                provider_data={"id": call.provider_id},
            )
            for call in self._calls
            if call.hosted
        ]

    def tool_requests(self) -> tuple[ToolRequest, ...]:
        """Return the calls that are not the host's, in the order in which they began."""
        return tuple(
            ToolRequest(call.provider_id, call.name, call.arguments, call.provider_data)
            for call in self._calls
            if not call.hosted
        )

    def _say(self, kind: Literal["text", "thinking"], text: str) -> Delta:
        self._spoken(kind).pieces.append(text)
        return Delta(kind, text)

    def _spoken(self, kind: Literal["text", "thinking"]) -> _Spoken:
        last = self._said[-1] if self._said else None
        if not isinstance(last, _Spoken) or last.kind != kind or last.closed:
            last = _Spoken(kind)
            self._said.append(last)
        return last

    def _add_thinking(self, block: dict[str, Any]) -> Iterator[Delta]:
        """Add a fragment of a thinking block: text, the signature that ends it, or a whole block that is encrypted."""
        if text := block.get("thinking"):
            yield self._say("thinking", text)
        opaque = {name: value for name, value in block.items() if name != "thinking" and value}
        if opaque.keys() - {"type"}:
            if block.get("type") == "redacted_thinking":
                self._said.append(_Spoken("thinking", provider_data=opaque, closed=True))
            else:
                spoken = self._spoken("thinking")
                spoken.provider_data, spoken.closed = opaque, True

    def _add_calls(self, fragments: Iterable[Any]) -> None:
        """Add fragments of tool calls: only one that has a name can begin a call, any other goes on with one."""
        begun_here: set[int] = set()
        for fragment in fragments:
            function = getattr(fragment, "function", None)
            if function is None:
                continue
            index, name = fragment.index, function.name or None
            provider_id = (fragment.id or "").partition(SIGNATURE_IN_ID)[0] or None
            call = self._current.get(index)
            if name is not None and (call is None or index in begun_here or _begins_another(call, provider_id, name)):
                call = _Call(name, provider_id)
                self._calls.append(call)
                self._current[index] = call
                begun_here.add(index)
            if call is not None:
                call.provider_id = call.provider_id or provider_id
                if isinstance(opaque := getattr(fragment, "provider_specific_fields", None), dict):
                    call.provider_data = opaque
                call.pieces.append(function.arguments or "")


def _begins_another(call: _Call, provider_id: str | None, name: str) -> bool:
    """Say whether a named fragment at the index of `call` is another call, not the same one named again."""
    other_id = provider_id is not None and call.provider_id is not None and provider_id != call.provider_id
    return other_id or name != call.name or call.is_whole()
