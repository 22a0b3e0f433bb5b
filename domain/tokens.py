"""How many tokens a request will have, about: by size, the same for every model, and cheap enough for every call.

A provider's own tokenizer would be nearer the truth by a tenth or two, at a hundred times the cost; where the estimate
is too low the provider says so, and the conversation is compacted then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BYTES_PER_TOKEN = 4
"""Of UTF-8: English and most code have about so many."""
MESSAGE_TOKENS = 4
IMAGE_TOKENS = 1_000
"""Whatever the size of its file."""


def tokens_of(messages: Iterable[Mapping[str, Any]]) -> int:
    """Return about how many tokens messages in the format of OpenAI's chat completions have."""
    return sum(MESSAGE_TOKENS + -(-_bytes(message) // BYTES_PER_TOKEN) for message in messages)


def _bytes(value: Any) -> int:
    match value:
        case str():
            return len(value) if value.isascii() else len(value.encode(errors="replace"))
        case {"type": "image_url"}:
            return IMAGE_TOKENS * BYTES_PER_TOKEN
        case dict():
            return sum(map(_bytes, value.values()))
        case list():
            return sum(map(_bytes, value))
        case None:
            return 0
        case _:
            return len(str(value))
