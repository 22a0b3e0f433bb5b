"""A script: fold a log with the aggregate and the read models of any checkout of Rejoinder.

``python -P fold_log.py CHECKOUT`` reads a line of JSON an event of one conversation (the fields of `StoredEvent`),
ascending by position, and prints lines of JSON:

- ``{"protocol": 1, "projections": {NAME: VERSION}}`` first,
- ``{"seq", "type", "state", "owes"}`` after each event of the conversation's own stream, what is owed at its own time;
  ``{"seq", "type", "error"}`` for one that the aggregate cannot take, which is the last of these,
- ``{"projection", "key", "row"}`` for each row, or ``{"projection", "error"}``,
- ``{"end": true}``.

What it uses of the checkout is no more than is there in every version: it runs with old ones, which do not have it.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from domain.event_store import StoredEvent
    from projections.event import Event
    from projections.projection import Projection

PROTOCOL = 1
OWN = "conversation-"
LINE = ("stream", "seq", "position", "event_id", "type", "data", "metadata")


def main(checkout: Path) -> None:
    """Read standard input to its end and print what the checkout makes of it."""
    sys.path.insert(0, str(checkout))
    import domain

    found = Path(str(domain.__file__)).parent
    if found != checkout / "domain":
        sys.exit(f"{checkout} has no package domain: {found} was found instead")
    from projections.catalog import PROJECTIONS

    _print({"protocol": PROTOCOL, "projections": {one.name: one.version for one in PROJECTIONS}})
    log = [_stored(json.loads(line)) for line in sys.stdin.buffer]
    if log:
        conversation_id = UUID(log[0].stream.removeprefix(OWN))
        _fold_aggregate(conversation_id, [event for event in log if event.stream.startswith(OWN)])
        for projection in PROJECTIONS:
            _fold_projection(projection, conversation_id, log)
    _print({"end": True})


def _stored(line: dict[str, Any]) -> StoredEvent:
    from domain.event_store import StoredEvent

    return StoredEvent(**{name: line[name] for name in LINE} | {"event_id": UUID(line["event_id"])})


def _fold_aggregate(conversation_id: UUID, log: list[StoredEvent]) -> None:
    from domain.conversation import Conversation
    from domain.owes import owes
    from domain.snapshots import dump
    from domain.wire import decode

    conversation = Conversation.at(conversation_id)
    for stored in log:
        said: dict[str, Any] = {"seq": stored.seq, "type": stored.type}
        try:
            event = decode(stored)
            conversation.fold([event])
            owed = [{"kind": _snake(type(one).__name__), **_fields(one)} for one in owes(conversation, event.timestamp)]
            said |= {"state": dump(conversation), "owes": owed}
        except Exception as error:  # whatever that version of the code finds wrong with it is the finding
            _print(said | {"error": _line(error)})
            return
        _print(said)


def _fold_projection(projection: Projection, conversation_id: UUID, log: list[StoredEvent]) -> None:
    from projections.projection import Rows

    rows = Rows(projection, conversation_id)
    try:
        projection.fold(rows, list(_events_for(projection, conversation_id, log)))
        changes = rows.take_changes()
    except Exception as error:  # as above
        _print({"projection": projection.name, "error": _line(error)})
        return
    for key, row in changes.items():
        if row is not None:
            named = dict(zip(projection.key, key, strict=True))
            _print({"projection": projection.name, "key": named, "row": row})


def _events_for(projection: Projection, conversation_id: UUID, log: list[StoredEvent]) -> Iterator[Event]:
    """Yield the events of the streams that the read model folds; of unknown types none does."""
    from domain.events import EVENT_TYPES
    from projections.event import Event

    streams = getattr(projection, "streams", "conversations")
    try:
        from domain.summary_events import SUMMARY_EVENT_TYPES
    except ImportError:  # before there were summaries
        SUMMARY_EVENT_TYPES = {}
    for stored in log:
        own = stored.stream.startswith(OWN)
        wanted = streams == "both" or streams == ("conversations" if own else "summaries")
        if wanted and stored.type in (EVENT_TYPES if own else SUMMARY_EVENT_TYPES):
            yield Event(stored, conversation_id)


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _print(value: dict[str, Any]) -> None:
    print(json.dumps(value, ensure_ascii=False, default=str))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
