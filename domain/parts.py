"""Content parts: what messages, replies and tool results are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from domain.text import truncated

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    """Return the parts cut to about `max_bytes` of JSON: text is truncated with a stub, what is left over dropped."""
    kept: list[Part] = []
    room = max_bytes
    for part in parts:
        size = len(part.model_dump_json().encode())
        if size > room:
            text = part.text if part.text is not None else part.model_dump_json(include={"data", "image_url"})
            kept.append(Part(type=part.type if part.text is not None else "text", text=truncated(text, room // 6)))
            break
        kept.append(part)
        room -= size
    return kept
