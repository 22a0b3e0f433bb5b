"""How single events read in the format of OpenAI's chat completions, which LiteLLM translates for every provider."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from domain.parts import text_of
from domain.wire import dumps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from domain.events import AssistantMsg, ToolCall, ToolResult, TurnEnded, UserMsg
    from domain.parts import Part

ProviderMessage = dict[str, Any]

_CANCELLED = "[The turn was cancelled before its reply was finished.]"
_CUT = "[The reply above was cut off: the turn was cancelled.]"


_LEFT_OUT = "[The result of this call was left out to save space: {size:,} bytes. Call the tool again to see it.]"
_CUT_OFF = "\n[Cut off here: {size:,} bytes in all. Call the tool again with narrower arguments to see the rest.]"
_LEFT_OUT_FORM, _CUT_OFF_FORM = (
    re.compile(re.escape(form).replace(re.escape("{size:,}"), r"[\d,]+") + r"\Z") for form in (_LEFT_OUT, _CUT_OFF)
)
_LONGEST_MARK = 200


def summary_message(content: str) -> ProviderMessage:
    """Render what stands for the older part of a conversation."""
    return {
        "role": "user",
        "content": f"[Summary of the conversation before this point, which it replaces:\n\n{content}\n]",
    }


def user_message(event: UserMsg) -> ProviderMessage:
    """Render what a person (or the caller's system) said."""
    return {"role": event.role, "content": _content(event.content)}


def assistant_message(event: AssistantMsg, calls: Sequence[ToolCall], model: str) -> ProviderMessage | None:
    """Render a reply with its calls for `model`; None for an empty one, which providers refuse.

    Thinking, images and what is opaque of its calls go back to the model family that made them, and to no other.
    """
    own = same_family(event.model, model)
    text = text_of(event.content)
    images = [_provider_part(part) for part in event.content if own and part.type == "image_url"]
    if not (text or images or calls):
        return None
    message: ProviderMessage = {"role": "assistant", "content": text or None}
    if images:
        message["content"] = [*([{"type": "text", "text": text}] if text else []), *images]
    thoughts = [part for part in event.content if own and part.type == "thinking"]
    if signed := [_thinking_block(part.text, part.provider_data) for part in thoughts if part.provider_data]:
        message["thinking_blocks"] = signed
    if calls:
        message["tool_calls"] = [_tool_call(call, own=own) for call in calls]
    return message


def tool_message(event: ToolResult, max_bytes: int | None = None) -> ProviderMessage:
    """Render the result of a call; of its text so many bytes of UTF-8 at most, and then a marker that says the rest."""
    content = _content(event.content)
    if max_bytes is not None:
        content = _cut(content, max_bytes) if isinstance(content, str) else _cut_parts(content, max_bytes)
    return {"role": "tool", "tool_call_id": event.tool_call_id, "content": content}


def left_out(message: ProviderMessage) -> ProviderMessage:
    """Return a result of a call without what it says, where that is shorter; any other message as it is."""
    if message["role"] != "tool":
        return message
    said = message["content"] if isinstance(message["content"], str) else dumps(message["content"])
    stub = _LEFT_OUT.format(size=len(said.encode()))
    return {**message, "content": stub} if len(stub) < len(said) else message


def stubbed(messages: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Return the ids of the calls whose results `left_out` has left out, and of those that `tool_message` has cut."""
    gone: list[str] = []
    cut: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            said = message["content"]
            texts = [said] if isinstance(said, str) else [part.get("text") or "" for part in said]
            if any(_LEFT_OUT_FORM.fullmatch(text) for text in texts):
                gone.append(message["tool_call_id"])
            elif any(_CUT_OFF_FORM.search(text[-_LONGEST_MARK:]) for text in texts):
                cut.append(message["tool_call_id"])
    return gone, cut


def cancelled_messages(event: TurnEnded) -> list[ProviderMessage]:
    """Tell the model that a turn was cancelled, and what of its reply people had seen by then."""
    if not event.partial_text:
        return [{"role": "user", "content": _CANCELLED}]
    return [{"role": "assistant", "content": event.partial_text}, {"role": "user", "content": _CUT}]


def same_family(one: str, other: str) -> bool:
    """Say whether two LiteLLM model names mean models of one provider and family.

    ``anthropic/claude-sonnet-4-5`` and ``anthropic/claude-opus-4-1`` do; a name without a provider fits every
    provider's models of that family.
    """
    (provider, family), (other_provider, other_family) = _family(one), _family(other)
    return family == other_family and (provider == other_provider or not provider or not other_provider)


def _family(model: str) -> tuple[str, str]:
    provider, _, name = model.lower().rpartition("/")
    return provider, re.split(r"[^a-z]", name, maxsplit=1)[0] or name


def _content(parts: Sequence[Part]) -> str | list[ProviderMessage]:
    """Render content as plain text where it is one, which every provider takes, else as parts."""
    if all(part.type == "text" for part in parts):
        return "\n".join(part.text or "" for part in parts)
    return [_provider_part(part) for part in parts]


def _cut_parts(parts: list[ProviderMessage], max_bytes: int) -> list[ProviderMessage]:
    """Keep what is no text, and of the text of all parts together so many bytes."""
    size = sum(len(part["text"].encode()) for part in parts if part["type"] == "text")
    if size <= max_bytes:
        return parts
    kept: list[ProviderMessage] = []
    left = max_bytes
    for part in parts:
        if part["type"] != "text":
            kept.append(part)
        elif left >= 0:
            raw = part["text"].encode()
            kept.append(part if len(raw) <= left else {**part, "text": _head(raw, left, size)})
            left -= len(raw)
    return kept


def _cut(text: str, max_bytes: int) -> str:
    if len(text) * 4 <= max_bytes or len(raw := text.encode()) <= max_bytes:
        return text
    return _head(raw, max_bytes, len(raw))


def _head(raw: bytes, max_bytes: int, size: int) -> str:
    return raw[:max_bytes].decode(errors="ignore") + _CUT_OFF.format(size=size)


def _provider_part(part: Part) -> ProviderMessage:
    if part.image_url is not None:
        return {"type": part.type, "image_url": part.image_url}
    if isinstance(part.data, dict):
        return {"type": part.type, **part.data}
    return {"type": "text", "text": part.text if part.text is not None else dumps(part.data)}


def _thinking_block(text: str | None, provider_data: dict[str, Any]) -> ProviderMessage:
    """Render a thinking block as its provider made it: signed text, or encrypted without one."""
    block = {"type": "thinking", **provider_data}
    return {**block, "thinking": text or ""} if block["type"] == "thinking" else block


def _tool_call(event: ToolCall, *, own: bool) -> ProviderMessage:
    """Render a call by our id, with the arguments that the model chose; only an object is one for every provider."""
    args = event.args if isinstance(event.args, dict) else {"arguments": event.args}
    function = {"name": event.name, "arguments": dumps(args)}
    opaque = {"provider_specific_fields": event.provider_data} if own and event.provider_data else {}
    return {"id": event.tool_call_id, "type": "function", "function": function, **opaque}
