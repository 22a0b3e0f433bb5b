"""What a docstring says to a model: the description, and a line for each argument (Google's style)."""

from __future__ import annotations

import re
from inspect import cleandoc

_SECTION = re.compile(r"(Args|Arguments|Parameters):")
_ARGUMENT = re.compile(r"(\w+)(?: ?\([^)]*\))?: +(\S.*)")


def described(docstring: str | None) -> tuple[str, dict[str, str]]:
    """Split a docstring into its description and the texts of its ``Args:`` section by argument name.

    That section ends at the next line that is not indented; other sections stay in the description.
    """
    said: list[str] = []
    arguments: dict[str, str] = {}
    current, in_section, indent = "", False, 0
    for line in cleandoc(docstring or "").splitlines():
        text = line.strip()
        depth = len(line) - len(line.lstrip())
        if text and depth == 0:
            in_section, indent = bool(_SECTION.fullmatch(text)), 0
        if not in_section:
            said.append(line)
        elif depth:
            indent = indent or depth
            match = _ARGUMENT.fullmatch(text) if depth == indent else None
            if match:
                current, arguments[match[1]] = match[1], match[2]
            elif current:
                arguments[current] += f" {text}"
    return "\n".join(said).strip(), arguments
