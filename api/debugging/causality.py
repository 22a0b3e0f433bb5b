"""What led to what in a log: by causation ids, by what a turn or reply answers and waits for."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projections.event import Event

Seqs = dict[int, tuple[int, ...]]


def causes_of(events: Sequence[Event]) -> Seqs:
    """Return for the seq of each event those of its causes among them, ascending; all are earlier.

    An event whose cause is not there follows from the event of its correlation id, if from any.
    """
    return {seq: tuple(sorted(causes)) for seq, causes in _Links(events).causes.items()}


class _Links:
    """Goes through a log once, ascending."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.causes: dict[int, set[int]] = {}
        self._by_id: dict[str, int] = {}
        self._messages: dict[str, int] = {}
        self._steering: dict[str, int] = {}
        self._newest_of_call: dict[str, int] = {}
        self._results: list[int] = []
        self._turn_seq = 0
        for event in events:
            self.causes[event.seq] = self._named(event) | self._followed(event)
            self._by_id[str(event.event_id)] = event.seq

    def _named(self, event: Event) -> set[int]:
        for name in ("causation_id", "correlation_id"):
            if (seq := self._by_id.get(str(event.metadata.get(name)))) is not None:
                return {seq}
        return set()

    def _followed(self, event: Event) -> set[int]:
        """Return the causes that no id names."""
        data = event.data
        match event.type:
            case "user_msg":
                self._messages[data["message_id"]] = event.seq
                if data.get("when_busy") == "steer" and data.get("respond", True):
                    self._steering[data["message_id"]] = event.seq
            case "turn_started":
                self._turn_seq, self._results = event.seq, []
                for message_id in data["answers"]:
                    self._steering.pop(message_id, None)
                return {self._messages[message_id] for message_id in data["answers"] if message_id in self._messages}
            case "assistant_msg":
                seen = {key: seq for key, seq in self._steering.items() if self._turn_seq < seq <= data["context_seq"]}
                for message_id in seen:
                    del self._steering[message_id]
                return self._take_results() | set(seen.values())
            case "turn_ended":
                return self._take_results()
            case "tool_step":
                return self._after_steps(event)
            case "tool_result":
                self._results.append(event.seq)
                return self._after_steps(event)
        return set()

    def _after_steps(self, event: Event) -> set[int]:
        """A tool works on from its newest step."""
        call = event.data["tool_call_id"]
        before = self._newest_of_call.get(call)
        self._newest_of_call[call] = event.seq
        return set() if before is None else {before}

    def _take_results(self) -> set[int]:
        results, self._results = set(self._results), []
        return results


def reaching(seq: int, links: Seqs) -> set[int]:
    """Return the seqs that follow from one by these links, and it."""
    found, waiting = {seq}, [seq]
    while waiting:
        for other in links.get(waiting.pop(), ()):
            if other not in found:
                found.add(other)
                waiting.append(other)
    return found


def effects_of(causes: Seqs) -> Seqs:
    """Turn the links round."""
    effects: dict[int, list[int]] = defaultdict(list)
    for seq, of in sorted(causes.items()):
        for cause in of:
            effects[cause].append(seq)
    return {seq: tuple(found) for seq, found in effects.items()}
