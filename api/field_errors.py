"""From pydantic's errors to named fields: the path as the caller wrote it, and never a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from api.errors import FieldError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import ValidationError

MOST = 50
LONGEST_NAME = 100

_WITHOUT_VALUES = {"uuid_parsing": "Input should be a valid UUID"}
"""Messages for the kinds of error whose own message quotes the input."""


def field_errors(error: ValidationError, given: Any, whole: str = "body") -> list[FieldError]:
    """Name every fault once, as a dotted path into `given`; `whole` stands for a fault of all of it."""
    found: dict[str, dict[str, bool]] = {}
    for fault in error.errors(include_input=False, include_url=False, include_context=False)[:MOST]:
        path = _path(fault["loc"], given, missing=fault["type"] == "missing")
        message = _WITHOUT_VALUES.get(fault["type"], fault["msg"].removeprefix("Value error, "))
        found.setdefault(path or whole, {})[message] = fault["type"].endswith("_type")
    return [
        FieldError(field, message) for field in found if not _has_inner(field, found) for message in _said(found[field])
    ]


def _said(messages: Mapping[str, bool]) -> Iterable[str]:
    """Return what is wrong with one field; `messages` say whether they are of its type, each of a branch of a union."""
    if fitting := [message for message, of_type in messages.items() if not of_type]:
        return fitting  # the branches whose type it is
    first, *others = messages
    return [" or ".join([first, *(other.removeprefix("Input should be ") for other in others)])]


def _has_inner(field: str, named: Iterable[str]) -> bool:
    """Say whether a fault inside of `field` is named too: then this one is of another branch of a union."""
    return any(other.startswith(f"{field}.") for other in named)


def _path(loc: tuple[int | str, ...], given: Any, *, missing: bool) -> str:
    """Leave out what pydantic adds to a path: the names of a union's branches, and the `type` that picks one."""
    path: list[str] = []
    value, tagged = given, False
    for index, part in enumerate(loc):
        is_last = index == len(loc) - 1
        if isinstance(value, dict) and value.get("type") == part and not (tagged or is_last):
            tagged = True
            continue
        fits_list = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if fits_list or (isinstance(value, dict) and part in value):
            value, tagged = value[part], False
        elif not (missing and is_last):
            continue
        path.append(str(part)[:LONGEST_NAME])
    return ".".join(path)
