"""The lines of an exported file (JSONL, format 1): a header, every event as its log holds it, and an end that counts.

::

    {"rejoinder":"export","format":1,"log_id":"…","exported_at":"…"}
    {"stream":"conversation-…","seq":1,"position":812,"event_id":"…","type":"…","data":{…},"metadata":{…}}
    {"end":{"conversations":1,"events":1,"sha256":"…"}}

A conversation's events, those of its summaries among them, stand together in the order in which they were appended.
Positions are those of the log that they come from. ``data`` and ``metadata`` are the very JSON that was appended; JSON
that would be written in another way here is a text, under ``data_text`` and ``metadata_text``. The hash is that of all
lines before the end; whoever edits a file on purpose takes it out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

from domain.event_store import MAX_EVENT_BYTES, StoredEvent
from domain.wire import dumps

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = 1
MOST_BYTES = 8 * MAX_EVENT_BYTES
"""A line that is longer holds no event: its data, even as a text of a text, and its metadata are shorter."""


@dataclass(frozen=True, slots=True)
class Header:
    """Which log the events come from, and when they were read."""

    log_id: UUID
    exported_at: datetime


@dataclass(frozen=True, slots=True)
class End:
    """What must have come before; `sha256` None: nobody knows its hash."""

    conversations: int
    events: int
    sha256: str | None


def header_line(header: Header) -> bytes:
    """Write the first line."""
    return _line(
        {
            "rejoinder": "export",
            "format": FORMAT,
            "log_id": str(header.log_id),
            "exported_at": header.exported_at.isoformat(),
        }
    )


def event_line(event: StoredEvent) -> bytes:
    """Write the line of an event."""
    line: dict[str, Any] = {
        "stream": event.stream,
        "seq": event.seq,
        "position": event.position,
        "event_id": str(event.event_id),
        "type": event.type,
    }
    for name, text in (("data", event.data), ("metadata", event.metadata)):
        value = _value(text)
        if value is None:
            line[f"{name}_text"] = text
        else:
            line[name] = value
    return _line(line)


def end_line(end: End) -> bytes:
    """Write the last line."""
    return _line({"end": {"conversations": end.conversations, "events": end.events, "sha256": end.sha256}})


def parse(line: bytes) -> Header | StoredEvent | End:
    """Read any line; raises `ValueError` with what is wrong with it."""
    try:
        value = json.loads(line, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("its JSON nests too deep") from None
    except ValueError as error:
        raise ValueError("it is not JSON in UTF-8") from error
    try:
        if "rejoinder" in value:
            return _header(value)
        if "end" in value:
            end = value["end"]
            return End(_number(end, "conversations"), _number(end, "events"), end.get("sha256"))
        return _event(value)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("it is no line of an exported file") from error


def _header(value: Mapping[str, Any]) -> Header:
    if value["format"] != FORMAT:
        raise ValueError(f"the file has format {value['format']}, this Rejoinder reads {FORMAT}: use a newer one")
    return Header(UUID(value["log_id"]), datetime.fromisoformat(value["exported_at"]))


def _event(value: Mapping[str, Any]) -> StoredEvent:
    return StoredEvent(
        _text(value, "stream"),
        _number(value, "seq"),
        _number(value, "position"),
        UUID(value["event_id"]),
        _text(value, "type"),
        _written(value, "data"),
        _written(value, "metadata"),
    )


def _line(value: Mapping[str, Any]) -> bytes:
    return dumps(value).encode() + b"\n"


def _value(text: str) -> Any:
    """Return the value of JSON that would be written again letter by letter as it is, else None."""
    try:
        value = json.loads(text)
        return value if value is not None and dumps(value) == text else None
    except (ValueError, RecursionError):
        return None


def _written(value: Mapping[str, Any], name: str) -> str:
    if (text := value.get(f"{name}_text")) is not None:
        return _text(value, f"{name}_text") if isinstance(text, str) else _wrong(f"{name}_text")
    return dumps(value[name])


def _text(value: Mapping[str, Any], name: str) -> str:
    return text if isinstance(text := value[name], str) else _wrong(name)


def _number(value: Mapping[str, Any], name: str) -> int:
    number = value[name]
    return number if isinstance(number, int) and not isinstance(number, bool) else _wrong(name)


def _wrong(name: str) -> NoReturn:
    raise ValueError(f"its {name} is of the wrong type")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
