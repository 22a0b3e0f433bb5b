"""The causal chain of an event: its causes up to what people said, its effects down to the turn's end, with times."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from pydantic import BaseModel

from api.debugging.causality import causes_of, effects_of, reaching
from api.event_text import event_text
from api.printable import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from projections.event import Event

WaitKind = Literal["queue", "wake", "model", "tool", "human", "client", "other"]
"""What was waited for: the turn before, a worker that takes the message up, the model, a tool, a person, a client.

Other is what a worker does besides: it loads the model library for its first call, runs hooks, tries again, records.
"""

MOST_CHARACTERS = 500
"""Of what an event says."""
_MODEL_FAILURES = {"rate_limited", "context_window", "auth", "bad_request", "unavailable", "truncated"}
_UNDER_THEIR_TURN = {"assistant_msg", "turn_resumed", "turn_ended"}


class TraceEvent(BaseModel):
    """An event of a trace. `parent` is the seq of the event that it is shown under, null for a root of the tree.

    `causes` are the seqs of all of its causes; `waits` are the milliseconds between the newest of them and the event,
    by what was waited for; `at_ms` counts from the first event of the trace. `slowest`: on the path that took longest.
    A sibling is neither a cause nor an effect, but an effect waited for it.
    """

    seq: int
    event_id: UUID
    type: str
    text: str
    occurred_at: datetime
    role: Literal["cause", "event", "effect", "sibling"]
    parent: int | None
    causes: list[int]
    waits: dict[WaitKind, float]
    at_ms: float
    slowest: bool


class Trace(BaseModel):
    """The chain of the event `seq`, ascending. `times` adds the waits of the slowest path up to `total_ms`.

    `ended`: the turn that it belongs to has ended.
    """

    conversation_id: UUID
    seq: int
    event_id: UUID
    ended: bool
    total_ms: float
    times: dict[WaitKind, float]
    events: list[TraceEvent]


def trace(events: Sequence[Event], wanted: UUID | int) -> Trace | None:
    """Trace an event of a log, by its id or seq; None if it is not there.

    `events` ascend without a gap; see `api.debugging.turns` for as many as matter.
    """
    seq = next((one.seq for one in events if wanted in (one.seq, one.event_id)), None)
    return None if seq is None else _Chain(events, seq).trace()


class _Chain:
    """The causes of an event, the event, its effects and what those waited for longest, ascending by seq."""

    def __init__(self, events: Sequence[Event], seq: int) -> None:
        self._seq, self._causes = seq, causes_of(events)
        self._log = {event.seq: event for event in events}
        self._above = reaching(seq, self._causes)
        self._below = reaching(seq, effects_of(self._causes))
        self._path = self._slowest(self._newest(self._above | self._below))
        self._shown = self._above | self._below | set(self._path)
        self._chain = sorted(self._shown)
        self._executors: dict[str, str] = {}
        self._questions: dict[str, str] = {}
        self._ends = [event.occurred_at for event in events if event.type == "turn_ended"]
        for event in events:
            if event.type == "tool_call":
                self._executors[event.data["tool_call_id"]] = event.data.get("executor", "server")
            elif event.type == "suspension":
                self._questions[str(event.event_id)] = event.data["kind"]

    def trace(self) -> Trace:
        event, path = self._log[self._seq], self._path
        waits = {seq: self._waits(seq) for seq in self._chain}
        times: dict[WaitKind, float] = {}
        for seq in path[1:]:
            for kind, took in waits[seq].items():
                times[kind] = round(times.get(kind, 0) + took, 3)
        return Trace(
            conversation_id=event.conversation_id,
            seq=event.seq,
            event_id=event.event_id,
            ended=any(self._log[seq].type == "turn_ended" for seq in self._chain),
            total_ms=_ms(self._log[path[0]].occurred_at, self._log[path[-1]].occurred_at),
            times=times,
            events=[self._event(seq, waits[seq]) for seq in self._chain],
        )

    def _event(self, seq: int, waits: dict[WaitKind, float]) -> TraceEvent:
        event = self._log[seq]
        began = min(self._log[one].occurred_at for one in self._chain)
        return TraceEvent(
            seq=seq,
            event_id=event.event_id,
            type=event.type,
            text=shortened(event_text(event.type, event.data), MOST_CHARACTERS),
            occurred_at=event.occurred_at,
            role=self._role(seq),
            parent=self._parent(seq),
            causes=list(self._causes[seq]),
            waits=waits,
            at_ms=_ms(began, event.occurred_at),
            slowest=seq in self._path,
        )

    def _role(self, seq: int) -> Literal["cause", "event", "effect", "sibling"]:
        if seq == self._seq:
            return "event"
        return "cause" if seq in self._above else "effect" if seq in self._below else "sibling"

    def _parent(self, seq: int) -> int | None:
        """Return what an event is shown under: its turn for what goes on in it step by step, else its newest cause.

        A result is shown under the call or the decision, not under the tool's steps.
        """
        event = self._log[seq]
        if event.type in _UNDER_THEIR_TURN:
            turns = (one for one in reversed(self._chain) if one < seq and self._log[one].type == "turn_started")
            return next(turns, None)
        causes = [cause for cause in self._causes[seq] if cause in self._shown]
        if event.type in ("tool_result", "tool_step"):
            causes = [cause for cause in causes if self._log[cause].type != "tool_step"] or causes
        return causes[-1] if causes else None

    def _slowest(self, last: int) -> list[int]:
        """Return the path to an event, each by the newest of its causes: the same one from wherever it is asked for."""
        path = [last]
        while causes := self._causes[path[-1]]:
            path.append(self._newest(causes))
        return path[::-1]

    def _newest(self, seqs: Iterable[int]) -> int:
        return max(seqs, key=lambda seq: (self._log[seq].occurred_at, seq))

    def _waits(self, seq: int) -> dict[WaitKind, float]:
        event, causes = self._log[seq], self._causes[seq]
        if not causes:
            return {}
        since = self._log[self._newest(causes)].occurred_at
        took = _ms(since, event.occurred_at)
        match event.type:
            case "turn_started":
                free = max((end for end in self._ends if since < end <= event.occurred_at), default=since)
                return _some({"queue": _ms(since, free), "wake": _ms(free, event.occurred_at)})
            case "assistant_msg":
                model = min(took, float(event.data.get("latency_ms") or took))
                return _some({"model": model, "other": round(took - model, 3)})
            case _:
                return _some({self._kind(event): took})

    def _kind(self, event: Event) -> WaitKind:
        data = event.data
        match event.type:
            case "tool_step":
                return "tool"
            case "tool_result" if self._executors.get(data["tool_call_id"], "server") == "server":
                return "tool"
            case "suspension":  # with another deadline than the one before it
                return "client" if data["kind"] == "client" else "human"
            case "resolution":
                asked = self._questions.get(str(event.metadata.get("causation_id")))
                return "client" if asked == "client" else "human"
            case "turn_ended" if data.get("reason") in _MODEL_FAILURES:
                return "model"
            case _:
                return "other"


def _some(waits: dict[WaitKind, float]) -> dict[WaitKind, float]:
    return {kind: took for kind, took in waits.items() if took > 0}


def _ms(start: datetime, end: datetime) -> float:
    """Return the milliseconds from one to the other; none where two clocks disagree."""
    return max(0.0, round((end - start).total_seconds() * 1000, 3))
