"""What must hold of the summaries of a run, however often whoever made them was killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domain import events
from domain.compaction import after, budget_of, cut
from domain.summaries import in_force, state_of
from domain.summary_events import SummaryFailed, SummaryRecorded, SummaryRevoked
from domain.wire import decode
from tests.crash.matrix.deaths import lost_summaries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from domain.compaction import Cut
    from domain.event_envelope import ConversationEvent
    from tests.crash.matrix.checks import Traces


def summaries(traces: Traces) -> Iterator[str]:
    """Each summary continues the one in force, up to a turn's end; none is lost, none is paid twice but by kills."""
    log, made = traces.log, [decode(event) for event in traces.summaries]
    recorded = [event for event in made if isinstance(event, SummaryRecorded)]
    for summary in recorded:
        before = in_force(made[: summary.seq - 1])
        base = before[-1].to_seq if before else None
        if (summary.based_on, summary.from_seq) != (base, (base or 0) + 1) or summary.to_seq < summary.from_seq:
            yield f"a summary that does not continue the one up to {base}: {summary}"
        if not isinstance(log[summary.to_seq - 1], events.TurnEnded):
            yield f"a summary that ends within a turn: {summary}"
    known = {summary.to_seq for summary in recorded} | {None}
    for event in log:
        if isinstance(event, (events.TurnStarted, events.TurnResumed)) and event.summary_to_seq not in known:
            yield f"{event.wire_type} {event.seq} knows of a summary that is not there: {event.summary_to_seq}"
    lost = sum(map(lost_summaries, traces.deaths))
    paid = len(recorded) + sum(isinstance(event, SummaryFailed) for event in made)
    if traces.asked_to_summarise > paid + lost:
        yield f"{traces.asked_to_summarise} summaries were asked for, {paid} told of and {lost} cut off by kills"
    if not any(isinstance(event, SummaryRevoked) for event in made) and (part := _left_to_summarise(log, made)):
        yield f"not summarised: {part.from_seq} to {part.to_seq}"


def _left_to_summarise(log: Sequence[ConversationEvent], made: Sequence[ConversationEvent]) -> Cut | None:
    started, state = log[0], state_of(made)
    assert isinstance(started, events.ConversationStarted)
    return cut(
        state.latest,
        after(state.latest, log),
        budget_of(started.settings, None),
        system_prompt=None,
        model="",
        asked=state.requested,
        most_tokens=10_000,
    )
