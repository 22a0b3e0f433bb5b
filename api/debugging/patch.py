"""The JSON Patch (RFC 6902) that makes one JSON object of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jsonpatch
from pydantic_core import to_json

if TYPE_CHECKING:
    from collections.abc import Mapping


def json_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the operations; members that are the same are not compared any deeper, so a large state costs little."""
    same = {name for name in before.keys() & after.keys() if to_json(before[name]) == to_json(after[name])}
    return list(jsonpatch.make_patch(_without(before, same), _without(after, same)).patch)


def patched(before: Mapping[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the object that a patch makes; what it is applied to stays as it is."""
    made: dict[str, Any] = jsonpatch.apply_patch(dict(before), patch)
    return made


def _without(state: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name not in names}
