"""Conversations that projections choke on: in the fold, or where the database refuses the row."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from domain.wire import stream_of
from projections.projection import Projection
from tests.support.given import asked, claimed, closed, history, said, started, stored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from domain.event_store import StoredEvent
    from projections.event import Event
    from projections.projection import Rows

POISON = "poison"


class Poisoned:
    """A projection whose fold raises at a message that says poison, for as long as it is `broken`."""

    def __init__(self, healthy: Projection) -> None:
        self.broken = True
        self._healthy = healthy
        self.projection = replace(healthy, fold=self._fold)

    def _fold(self, rows: Rows, events: Sequence[Event]) -> None:
        for event in events:
            if self.broken and POISON in str(event.data.get("content")):
                raise ValueError(f"cannot take {event.data['content'][0]['text']}\nand more")
        self._healthy.fold(rows, events)


def _fold_notes(rows: Rows, events: Sequence[Event]) -> None:
    for event in events:
        if event.type == "user_msg":
            text = event.data["content"][0]["text"]
            rows.put({"seq": event.seq, "size": len(text) if text != "missing" else None, "note": text})


NOTES = Projection(
    name="notes",
    version=1,
    columns={"seq": "int not null", "size": "int not null check (size <> 13)", "note": "text not null"},
    key=("seq",),
    indexes=("(note)",),
    fold=_fold_notes,
)
"""The database refuses the texts of `REFUSED`."""

REFUSED = {
    "missing": "23502",
    "a" * 13: "23514",
    "".join(map(chr, random.Random(1).sample(range(0x4E00, 0x9000), 5000))): "54000",
}
"""Text → the SQLSTATE by which the database refuses its row."""


def conversation(number: int, text: str = "Hello") -> list[StoredEvent]:
    """Make a log of six events; the third says the text."""
    facts = history(started(), asked("m1"), asked("m2", text=text), claimed(), said(), closed())
    return moved_to(UUID(int=number), [stored(event) for event in facts])


def goes_on(number: int, messages: int = 1) -> list[StoredEvent]:
    """Make the events that follow on `conversation`."""
    facts = history(*[started()] * 6, *(asked(f"m{n}", text="More") for n in range(3, 3 + messages)))
    return moved_to(UUID(int=number), [stored(event) for event in facts])[6:]


def moved_to(conversation_id: UUID, log: Sequence[StoredEvent]) -> list[StoredEvent]:
    """Give the events of a log to another conversation."""
    chance = random.Random(conversation_id.int)
    stream = stream_of(conversation_id)
    return [replace(event, stream=stream, event_id=UUID(int=chance.getrandbits(128), version=4)) for event in log]
