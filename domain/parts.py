"""Content parts: what messages, replies and tool results are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from domain.text import clean, truncated

if TYPE_CHECKING:
    from collections.abc import Sequence


_ENVELOPE_BYTES = 256


class Part(BaseModel):
    """One piece of content: `type` says which of the fields are meant.

    ``text`` and ``thinking`` have `text`; ``image_url`` has `image_url` = ``{"url": …}``; any other type (a
    hosted tool's, a file) is kept whole in `data`. `provider_data` is opaque and returns to its provider only.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: str
    text: str | None = None
    image_url: dict[str, Any] | None = None
    data: Any = None
    provider_data: dict[str, Any] | None = None


def text_part(text: str) -> Part:
    """Make a part of plain text."""
    return Part(type="text", text=text)


def text_of(parts: Sequence[Part]) -> str:
    """Join the text of the text parts."""
    return "".join(part.text or "" for part in parts if part.type == "text")


def fitted(parts: Sequence[Part], max_bytes: int) -> list[Part]:
    """Return the parts, cleaned, cut to about `max_bytes` of JSON.

    The first that is too large becomes a stub (a text keeps its beginning); how many parts follow is told instead.
    """
    kept: list[Part] = []
    room = max_bytes
    for left, part in zip(range(len(parts) - 1, -1, -1), parts, strict=True):
        part = Part.model_validate(clean(part))
        size = _json_bytes(part)
        if size > room:
            kept.append(_cut(part, room - _ENVELOPE_BYTES))
            if left:
                kept.append(text_part(f"[{left:,} more parts left out]"))
            break
        kept.append(part)
        room -= size
    return kept


def _cut(part: Part, room: int) -> Part:
    if part.text is None:
        return text_part(f"[{part.type} left out: {_json_bytes(part):,} bytes]")
    return Part(type=part.type, text=truncated(part.text, max(0, room)))


def _json_bytes(part: Part) -> int:
    return len(part.model_dump_json(exclude_none=True).encode()) + 1
