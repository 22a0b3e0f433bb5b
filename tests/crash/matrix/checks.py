"""What must hold of a run when it is over, however often it was killed; each check yields what does not."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from domain import events
from domain.conversation import Conversation
from domain.owes import AwaitInput, owes
from domain.wire import decode
from projections.agenda import AGENDA
from tests.crash.matrix.deaths import held, recoveries, unrecorded, was_appending, was_asking
from tests.crash.matrix.outline import outline_of
from tests.crash.matrix.summaries import summaries
from tests.support.agents import assert_paid
from tests.support.projecting import fold_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from domain.event_envelope import ConversationEvent
    from domain.event_store import StoredEvent
    from projections.projection import Projection, Row
    from tests.crash.matrix.follower import Follower
    from tests.crash.matrix.person import Acknowledged
    from tests.crash.matrix.scenario import Scenario
    from tests.crash.matrix.victims import Victim

LONGEST_RECOVERY_S = 15.0
"""A lease ends after eight seconds; the rest is for a machine that is busy with other tests."""


@dataclass(frozen=True)
class Traces:
    """All that a run left behind.

    `summaries` is the sibling stream, `requests` are the bodies that the provider got (of those for summaries
    `asked_to_summarise` tells the number), `views` the rows of the read models, `messages` what people see.
    """

    scenario: Scenario
    stored: Sequence[StoredEvent]
    summaries: Sequence[StoredEvent]
    acknowledged: Sequence[Acknowledged]
    victims: Sequence[Victim]
    requests: Sequence[dict[str, Any]]
    asked_to_summarise: int
    views: Sequence[tuple[Projection, dict[tuple[Any, ...], Row]]]
    followers: Sequence[Follower]
    messages: dict[str, dict[str, Any]]
    clean: list[str] | None
    now: datetime

    @property
    def log(self) -> list[ConversationEvent]:
        """The events."""
        return [decode(event) for event in self.stored]

    @property
    def deaths(self) -> list[Victim]:
        """The processes that were killed at their boundary."""
        return [victim for victim in self.victims if victim.died_there]


def violations(traces: Traces) -> list[str]:
    """Return all that should not be."""
    return [f"{check.__name__.strip('_')}: {found}" for check in CHECKS for found in check(traces)]


def _commands(traces: Traces) -> Iterator[str]:
    """Every acknowledged command is in the log once, and nothing is there that nobody was told of."""
    accepted = [one for one in traces.acknowledged if one.status < 300]
    about_summaries = [one for one in accepted if re.search(r"/compact$|/summaries/\d+$", one.path)]
    yield from _acknowledged(traces.stored, [one for one in accepted if one not in about_summaries])
    yield from _acknowledged(traces.summaries, about_summaries)


def _acknowledged(stored: Sequence[StoredEvent], accepted: Sequence[Acknowledged]) -> Iterator[str]:
    of_events = {event.seq: from_json(event.metadata).get("command_id") for event in stored}
    for one in accepted:
        if of_events.get(one.answer["seq"]) is None:
            yield f"acknowledged, and not in the log: {one}"
    found = Counter(of_events[one.answer["seq"]] for one in accepted if one.answer["seq"] in of_events)
    if set(found) != set(of_events.values()) - {None} or max(found.values(), default=1) > 1:
        yield f"{len(accepted)} commands were acknowledged, {len(set(of_events.values()) - {None})} took effect"


def _log(traces: Traces) -> Iterator[str]:
    """Turns, calls, results and replies pair up, and nothing is owed any more."""
    log = traces.log
    if [event.seq for event in log] != list(range(1, len(log) + 1)):
        yield f"gaps: {[event.seq for event in log]}"
    try:
        assert_paid(log)
    except AssertionError as error:
        yield f"not paid: {error}"
    conversation = Conversation.at(log[0].originator_id).fold(log)
    if owed := [one for one in owes(conversation, traces.now) if not isinstance(one, AwaitInput)]:
        yield f"still owed: {owed}"
    resumed = sum(isinstance(event, events.TurnResumed) and event.summary_to_seq is None for event in log)
    if resumed > len(traces.deaths):
        yield f"{resumed} times resumed after {len(traces.deaths)} deaths"


def _outline(traces: Traces) -> Iterator[str]:
    """The log could be that of a run that was not killed."""
    outline = outline_of(traces.log)
    if traces.clean is not None and not traces.scenario.judge(outline, traces.clean):
        yield "\n".join(["another outcome:", *outline, "than without a kill:", *traces.clean])


def _effects(traces: Traces) -> Iterator[str]:
    """Side effects happen under the ids of calls that may run, and again only if the first was not recorded."""
    calls = {event.tool_call_id: event for event in traces.log if isinstance(event, events.ToolCall)}
    results = {event.tool_call_id: event for event in traces.log if isinstance(event, events.ToolResult)}
    noted = [note for victim in traces.victims for note in victim.notes if "effect" in note]
    lost = Counter(one for victim in traces.deaths for one in unrecorded(victim))
    runs = Counter((note["effect"], note["id"]) for note in noted)
    for (effect, call_id), times in runs.items():
        if call_id not in calls or not (effect == calls[call_id].name or effect.startswith("step ")):
            yield f"{effect} took effect under {call_id}, which is none of its calls"
        elif times > (1 if effect == "charge" else 1 + lost[effect, call_id]):
            yield f"{effect} took effect {times} times under {call_id}, with {lost[effect, call_id]} unrecorded"
        elif call_id in results and results[call_id].status in ("rejected", "expired"):
            yield f"{effect} took effect under {call_id}, which was {results[call_id].status}"
    for call_id, call in calls.items():
        done = results.get(call_id)
        if call.executor == "server" and done and done.status == "ok" and not runs[call.name, call_id]:
            yield f"{call.name} {call_id} has a result and never ran"
    steps = Counter((e.tool_call_id, e.step, e.n) for e in traces.log if isinstance(e, events.ToolStep))
    if steps and max(steps.values()) > 1:
        yield f"a step was recorded twice: {steps}"


def _takeovers(traces: Traces) -> Iterator[str]:
    """Who goes on with a turn whose holder died says so before anything else."""
    for victim in traces.deaths:
        last, holds = held(victim)
        if not holds or was_appending(victim):
            continue
        turn = next((e for e in reversed(traces.log[:last]) if isinstance(e, events.TurnStarted)), None)
        for event in traces.log[last:]:
            if turn is None or isinstance(event, (events.TurnResumed, events.TurnEnded, events.TurnStarted)):
                break
            if isinstance(event, (events.AssistantMsg, events.ToolStep)):
                yield f"{event.wire_type} {event.seq} follows on the death of a holder without turn_resumed"
                break


def _recovery(traces: Traces) -> Iterator[str]:
    """What a dead process held is worked on again in time."""
    for seconds in recoveries(traces.victims):
        if seconds > LONGEST_RECOVERY_S:
            yield f"gone on with after {seconds:.1f} s"


def _requests(traces: Traces) -> Iterator[str]:
    """The model is asked again only what a kill kept from being recorded, and never sees a call without a result."""
    tries, cut_off = traces.scenario.tries, sum(map(was_asking, traces.deaths))
    asked = Counter(json.dumps(request["messages"], sort_keys=True) for request in traces.requests)
    for messages, times in asked.items():
        if times > tries * (1 + cut_off):
            yield f"the model was asked {times} times, with {cut_off} cut off by kills: {messages}"
    replies = sum(isinstance(event, events.AssistantMsg) for event in traces.log)
    without = sum(isinstance(event, events.TurnEnded) and event.outcome != "completed" for event in traces.log)
    if len(traces.requests) > tries * (replies + without + cut_off):
        yield f"{len(traces.requests)} requests for {replies} replies and {cut_off} cut off by kills"
    for messages in asked:
        yield from _unpaired(json.loads(messages))


def _unpaired(messages: list[dict[str, Any]]) -> Iterator[str]:
    called = Counter(call["id"] for message in messages for call in message.get("tool_calls") or ())
    answered = Counter(message["tool_call_id"] for message in messages if message["role"] == "tool")
    if called != answered or max(called.values(), default=1) > 1:
        yield f"a request whose calls and results do not pair: {messages}"
    users = Counter(str(message["content"]) for message in messages if message["role"] == "user")
    if max(users.values()) > 1:
        yield f"a request that repeats what a user said: {messages}"


def _views(traces: Traces) -> Iterator[str]:
    """Each read model is what a fresh fold of the log makes of it."""
    for projection, rows in traces.views:
        expected = fold_whole(projection, sorted([*traces.stored, *traces.summaries], key=lambda one: one.position))
        if projection is AGENDA:  # what owes nothing may have been swept away
            expected = {key: row for key, row in expected.items() if row["state"] or key in rows}
        for key in sorted({*expected, *rows}, key=str):
            if rows.get(key) != expected.get(key):
                yield f"{projection.name} has {rows.get(key)} instead of {expected.get(key)}"


def _streams(traces: Traces) -> Iterator[str]:
    """Who followed sees what is there, each event once and in order, whatever served the stream was killed."""
    for follower in traces.followers:
        if follower.view == "events" and follower.seqs != [event.seq for event in traces.stored]:
            yield f"its stream had the events {follower.seqs}"
        if follower.view == "messages" and follower.rows != traces.messages:
            yield f"its stream had the rows {follower.rows}, there are {traces.messages}"


def _notes(traces: Traces) -> Iterator[str]:
    """No process broke, and none logged an error."""
    for victim in traces.victims:
        for note in victim.notes:
            if "broken" in note or note.get("log", "").startswith(("ERROR", "CRITICAL")):
                yield str(note.get("broken") or note["log"])


CHECKS = (
    _commands, _log, _outline, _effects, _takeovers, _recovery, _requests, summaries, _views, _streams, _notes,
)  # fmt: skip
