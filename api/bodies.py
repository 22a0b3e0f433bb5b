"""Request bodies: strict JSON in UTF-8, of bounded size and depth, that fits its model exactly."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from api.errors import BodyTooLarge, FieldError, InvalidRequest, UnsupportedMediaType
from api.field_errors import field_errors
from api.resources import resources
from domain.text import clean
from domain.wire import dumps

if TYPE_CHECKING:
    from collections.abc import Iterator

Body = TypeVar("Body", bound=BaseModel)

JSON_TYPES = {"application/json", "application/merge-patch+json"}
MAX_DEPTH = 64
"""Deeper JSON is refused: whatever handles it later may recurse."""


@dataclass(frozen=True, slots=True)
class GivenBody(Generic[Body]):
    """A valid body and the SHA-256 of what it says, whatever its spacing and the order of its keys."""

    model: Body
    body_hash: str


async def read_body(request: web.Request, model: type[Body]) -> GivenBody[Body]:
    """Read and validate the body; no body at all stands for ``{}``.

    Raises `UnsupportedMediaType`, `BodyTooLarge` or `InvalidRequest`. Text is cleaned of what no store takes.
    """
    raw = await _read(request)
    value = clean(parse_json(raw)) if raw.strip() else {}
    try:
        # strict JSON mode: "5" is no number, but a string may be a UUID or a time
        valid = model.model_validate_json(dumps(value), strict=True)
    except ValidationError as error:
        raise InvalidRequest(field_errors(error, value)) from None
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return GivenBody(valid, hashlib.sha256(canonical.encode()).hexdigest())


def parse_json(raw: bytes) -> Any:
    """Parse JSON as RFC 8259 has it: no NaN or Infinity, no number beyond floats, no key twice, bounded depth."""
    try:
        value = json.loads(raw.decode(), object_pairs_hook=_unique)
    except UnicodeDecodeError:
        raise InvalidRequest([FieldError("body", "must be UTF-8")]) from None
    except json.JSONDecodeError as error:
        message = f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        raise InvalidRequest([FieldError("body", message)]) from None
    except ValueError:  # Python's limit on the digits of an integer
        raise InvalidRequest([FieldError("body", "has a number with too many digits")]) from None
    except RecursionError:
        raise InvalidRequest([FieldError("body", f"may be nested {MAX_DEPTH} deep")]) from None
    if faults := list(_faults(value)):
        raise InvalidRequest(faults)
    return value


async def _read(request: web.Request) -> bytes:
    limit = resources(request).settings.max_body_bytes
    if request.content_length is not None and request.content_length > limit:
        raise BodyTooLarge(f"a body may have {limit:,} bytes, as REJOINDER_MAX_BODY_BYTES says")
    try:
        raw = await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise BodyTooLarge(f"a body may have {limit:,} bytes, as REJOINDER_MAX_BODY_BYTES says") from None
    if raw and (request.content_type not in JSON_TYPES or (request.charset or "utf-8").lower() != "utf-8"):
        raise UnsupportedMediaType("send JSON in UTF-8 with Content-Type: application/json")
    return raw


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InvalidRequest([FieldError(twice[:100], "is there twice")])
    return found


def _faults(value: Any) -> Iterator[FieldError]:
    """Look at everything without recursion; the first few faults are enough."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), value)]
    while waiting:
        path, item = waiting.pop()
        if isinstance(item, float) and not math.isfinite(item):
            yield FieldError(".".join(path) or "body", "must be a finite number")
        elif len(path) >= MAX_DEPTH and isinstance(item, (dict, list)):
            yield FieldError(".".join(path[:3]), f"may be nested {MAX_DEPTH} deep")
        elif isinstance(item, dict):
            waiting += [((*path, key[:100]), inner) for key, inner in item.items()]
        elif isinstance(item, list):
            waiting += [((*path, str(index)), inner) for index, inner in enumerate(item)]
