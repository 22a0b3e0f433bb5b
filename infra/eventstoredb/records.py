"""Between our events and EventStoreDB's records: names, revisions, and what their metadata says besides."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from domain.event_store import STREAM_DELETED, StoredEvent
from infra.eventstoredb.clients import NewEvent as NewRecord
from infra.storable import parsed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from domain.event_store import NewEvent
    from infra.eventstoredb.clients import RecordedEvent

MOST = 2**63 - 1
"""The greatest seq; also a tombstone's, whose revision is the greatest that there is."""

HEAD = re.compile(rb'\{"\$correlationId":(?:null|"[^"\\]*"),"\$causationId":(?:null|"[^"\\]*"),"\$more":(\d+),')
"""What `to_record` puts before the members of an event's metadata.

The ids are where EventStoreDB's own projections look for them. `$more` counts the events of the same append that
follow: without it a subscriber could not tell a whole append from a part.
"""


class Names:
    """The names of our streams on the server, where a prefix keeps them apart from others'."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def on_server(self, stream: str) -> str:
        """Return the server's name of a stream."""
        return self._prefix + stream

    def filter(self, prefixes: Sequence[str] = ()) -> list[str]:
        """Return the filter for streams that begin with one of the prefixes; none: for all but the server's own.

        One pattern in a group: the client anchors only the ends of what it is given.
        """
        if any(prefixes) and all(prefixes):
            return [f"{re.escape(self._prefix)}(?:{'|'.join(map(re.escape, prefixes))})[\\s\\S]*"]
        return [f"{re.escape(self._prefix)}[\\s\\S]*" if self._prefix else "[^$][\\s\\S]*"]

    def only(self, stream: str) -> list[str]:
        """Return the filter for one stream."""
        return [re.escape(self._prefix + stream)]

    def stored(self, record: RecordedEvent) -> StoredEvent:
        """Make the event of a record: ours to the letter, of other programs' whatever can be read as text."""
        stream, position = record.stream_name.removeprefix(self._prefix), record.commit_position or 0
        if record.type == STREAM_DELETED:
            return StoredEvent(stream, MOST, position, record.id, STREAM_DELETED, "{}", "{}")
        data, metadata = record.data, HEAD.sub(b"{", record.metadata, count=1)
        texts = data.decode(errors="replace"), metadata.decode(errors="replace")
        return StoredEvent(stream, record.stream_position + 1, position, record.id, record.type, *texts)


def to_record(event: NewEvent, more: int) -> NewRecord:
    """Make the record of an event after which `more` follow in its append; raises `ValueError` for what is not JSON."""
    parsed(event.data)
    metadata = event.metadata
    ids = parsed(metadata)
    if metadata.startswith('{"'):
        correlation, causation = _id(ids, "correlation_id"), _id(ids, "causation_id")
        metadata = f'{{"$correlationId":{correlation},"$causationId":{causation},"$more":{more},{metadata[1:]}'
    return NewRecord(type=event.type, data=event.data.encode(), metadata=metadata.encode(), id=event.event_id)


def _id(metadata: dict[str, Any], name: str) -> str:
    value = metadata.get(name)
    return json.dumps(value) if isinstance(value, str) and re.fullmatch(r"[\w-]+", value, re.ASCII) else "null"


def more_to_come(record: RecordedEvent) -> bool:
    """Say whether further events of the same append follow."""
    found = HEAD.match(record.metadata)
    return found is not None and found[1] != b"0"


def without_torn_end(records: list[RecordedEvent]) -> list[RecordedEvent]:
    """Cut an append off the end of a page that holds only a part of it."""
    end = len(records)
    while end and more_to_come(records[end - 1]):
        end -= 1
    return records[:end]
