"""The check of an exported file by itself: is each log sound, and do its read models not depend on how it is cut."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from pydantic_core import to_json

from api.transfer.judging import Judge
from api.transfer.reader import read_lines
from domain.wire import STREAM, kind_of
from projections.projection import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path
    from uuid import UUID

    from api.transfer.reader import Line
    from projections.event import Event
    from projections.projection import Key, Projection

AT_ONCE, IN_PIECES = 500, 7
"""How many events a read model is given at a time, in the two ways that have to come to the same."""
MOST_SHOWN = 20


@dataclass(slots=True)
class Findings:
    """Faults of one kind, of which the first are `shown`, and how much was looked at."""

    about: str
    what: str
    looked_at: int = 0
    count: int = 0
    shown: list[str] = field(default_factory=list)

    def add(self, fault: str) -> None:
        """Count a fault, and keep it if it is one of the first."""
        self.count += 1
        if self.count <= MOST_SHOWN:
            self.shown.append(fault)


def check(path: Path, projections: Sequence[Projection], progress: Callable[[int], None]) -> list[Findings]:
    """Read a file and say what is wrong: first with its logs, then with each read model. `progress`: events done.

    Raises `ExportError` for a line that is none, and at the end for a file that is cut off or was changed; `OSError`.
    """
    logs = Findings("log", "events")
    of = [Findings(projection.name, "rows") for projection in projections]
    for conversation_id, lines in groupby(read_lines(path), lambda line: line.conversation_id):
        _Checked(conversation_id, projections, logs, of).run(lines, progress)
    return [logs, *of]


class _Checked:
    """One conversation."""

    def __init__(
        self, conversation_id: UUID, projections: Sequence[Projection], logs: Findings, of: Sequence[Findings]
    ) -> None:
        self._logs, self._judge = logs, Judge(conversation_id)
        self._models = [_Model(one, conversation_id, findings) for one, findings in zip(projections, of, strict=True)]

    def run(self, lines: Iterable[Line], progress: Callable[[int], None]) -> None:
        for line in lines:
            self._logs.looked_at += 1
            event, faults = self._judge.take(line)
            for fault in faults:
                self._logs.add(f"line {line.number}: {fault}")
            if event is not None:
                for model in self._models:
                    model.take(event)
            if self._logs.looked_at % AT_ONCE == 0:
                progress(self._logs.looked_at)
        for model in self._models:
            model.finish()


class _Model:
    """What one read model makes of one conversation, in both ways."""

    def __init__(self, projection: Projection, conversation_id: UUID, findings: Findings) -> None:
        self._id, self._findings, self._streams = conversation_id, findings, projection.streams
        self._ways = [_Way(projection, conversation_id, size) for size in (AT_ONCE, IN_PIECES)]

    def take(self, event: Event) -> None:
        kind = kind_of(event.stored.stream)[0]
        if self._streams == "both" or (self._streams == "conversations") == (kind == STREAM):
            for way in self._ways:
                self._try(way, [event])

    def finish(self) -> None:
        for way in self._ways:
            self._try(way, [])
        whole, cut = (way.digests for way in self._ways)
        self._findings.looked_at += len(whole)
        for key in whole.keys() | cut.keys():
            if whole.get(key) != cut.get(key) and all(way.error is None for way in self._ways):
                named = ", ".join(map(str, (self._id, *key)))
                self._findings.add(f"{self._findings.about}[{named}]: another row when the log is cut into pieces")

    def _try(self, way: _Way, events: Sequence[Event]) -> None:
        if way.error is None:
            way.take(events)
            if way.error is not None:
                self._findings.add(f"{self._findings.about}[{self._id}]: it cannot be folded {way.error}")


class _Way:
    """A fold of events in pieces of a size; of the rows only digests are kept, by their keys."""

    def __init__(self, projection: Projection, conversation_id: UUID, size: int) -> None:
        self._projection, self._size = projection, size
        self._rows = Rows(projection, conversation_id)
        self._waiting: list[Event] = []
        self.digests: dict[Key, int] = {}
        self.error: str | None = None

    def take(self, events: Sequence[Event]) -> None:
        """Take further events; none: there are no more."""
        self._waiting += events
        if self._waiting and (not events or len(self._waiting) >= self._size):
            self._fold()
            self._waiting = []

    def _fold(self) -> None:
        try:
            self._projection.fold(self._rows, self._waiting)
        except Exception as error:
            self.error = f"from event {self._waiting[0].seq} on: {type(error).__name__}"
            return
        for key, row in self._rows.take_changes().items():
            if row is None:
                self.digests.pop(key, None)
            else:
                self.digests[key] = hash(to_json([row[column] for column in sorted(row)], inf_nan_mode="null"))
