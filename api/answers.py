"""Answers in JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from aiohttp import web
from pydantic import BaseModel
from pydantic_core import to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from commands.context import Receipt


class Accepted(BaseModel):
    """What every command answers: the seq of the last event that it appended, and the position for `min_position`."""

    conversation_id: UUID
    seq: int
    position: int


def json_bytes(value: Any) -> bytes:
    """Return the JSON, on one line, of anything made of its types, times, UUIDs, dataclasses and pydantic models."""
    return to_json(value, inf_nan_mode="null")


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Answer with anything that `json_bytes` takes."""
    return web.Response(body=json_bytes(value), status=status, headers=headers, content_type="application/json")


def accepted(receipt: Receipt, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Answer a command: what it appended, and its own fields."""
    value = {
        "conversation_id": receipt.conversation_id,
        "seq": receipt.seq,
        "position": receipt.position,
        **receipt.answer,
    }
    return json_answer(value, status, headers)
