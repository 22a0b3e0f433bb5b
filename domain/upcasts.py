"""Older shapes of events brought to today's: one pure function per type and schema version, applied in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

UPCASTS: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""(wire type, schema version) → the function that makes that data the next version's."""


def upcast(wire_type: str, schema_version: int, data: dict[str, Any]) -> dict[str, Any]:
    """Return `data` in the newest shape of its type."""
    while step := UPCASTS.get((wire_type, schema_version)):
        data, schema_version = step(data), schema_version + 1
    return data
