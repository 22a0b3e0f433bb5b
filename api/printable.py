"""Text of people, models and tools on its way to a terminal."""

from __future__ import annotations

import re

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Replace what would steer the terminal or turn the direction of writing; tabs and line ends stay."""
    return _CONTROLS.sub("\ufffd", text.replace("\r\n", "\n"))


def on_one_line(text: str) -> str:
    """Return the text as one printable line."""
    return printable(" ".join(text.split()))


def shortened(text: str, characters: int) -> str:
    """Cut a text, showing that it goes on."""
    return text if len(text) <= characters else text[: characters - 1] + "…"
