"""When a conversation is compacted, and what of it: the budget, and the cut between its turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from domain.events import AssistantMsg, ToolResult, TurnEnded, TurnStarted, UserMsg
from domain.tokens import BYTES_PER_TOKEN
from domain.working_set import WorkingSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from domain.event_envelope import ConversationEvent
    from domain.events import Resource
    from domain.provider_messages import ProviderMessage
    from domain.summary_events import CompactionStrategy, SummaryRecorded

DEFAULT_WINDOW = 128_000
"""Tokens, of a model that nobody knows; a smaller one says so when it refuses a request."""
WINDOW_SHARE = 0.75
"""Of a model's window is the default budget: tools, hooks, the reply and errors of the estimate need the rest."""
KEEP_RECENT = 20_000
SUMMARY_SHARE, LONGEST_SUMMARY = 0.25, 8_000
"""So much of the budget may a summary take, and so many tokens at most."""
RESULT_SHARE = 0.25
"""So much of the budget may one tool result take."""
LARGEST_RESULT = 64 * 1024
"""Bytes of one tool result that a model sees at most, whatever its window."""
MOST_RESOURCES = 200
"""So many are remembered, the newest."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a conversation's settings say of its size, in tokens by our estimate; `model` is the summariser, if set."""

    strategy: CompactionStrategy
    tokens: int
    keep_recent: int
    result_bytes: int
    summary_tokens: int
    model: str | None = None


def budget_of(settings: Mapping[str, Any], window: int | None) -> Budget:
    """Return the budget under these settings, for a model with this window (None: not known)."""
    given = settings.get("compaction") or {}
    tokens = int(given.get("budget_tokens") or WINDOW_SHARE * (window or DEFAULT_WINDOW))
    keep = given.get("keep_recent_tokens")
    return Budget(
        cast("CompactionStrategy", given.get("strategy") or "llm"),
        tokens,
        min(KEEP_RECENT if keep is None else keep, tokens // 2),
        min(LARGEST_RESULT, max(2_000, int(RESULT_SHARE * tokens * BYTES_PER_TOKEN))),
        min(LONGEST_SUMMARY, int(SUMMARY_SHARE * tokens)),
        given.get("model"),
    )


def exceeds(budget: Budget, tokens: int, largest_turn_tokens: int) -> bool:
    """Say whether a conversation is too large after a turn, given its size and that of its largest turn.

    The next turn is to find room within the budget: a tenth of it, or as much as any turn took, up to a quarter.
    So what was too large once stays so, whatever comes, until something of it is summarised.
    """
    room = max(budget.tokens // 10, min(largest_turn_tokens, budget.tokens // 4))
    return budget.strategy != "none" and tokens + room > budget.tokens


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of a conversation that a summary is to stand for, and what the summary before said of the rest.

    `messages` are that part as the model saw it, without what was carried over. Tokens are by our estimate.
    """

    based_on: SummaryRecorded | None
    from_seq: int
    to_seq: int
    carried: tuple[int, ...]
    context_seq: int
    messages: Sequence[ProviderMessage]
    resources: tuple[Resource, ...]
    tokens: int
    tokens_before: int


@dataclass(frozen=True, slots=True)
class _End:
    """A turn's end: how large everything up to there is, and which messages wait there for an answer."""

    seq: int
    tokens: int
    waiting: tuple[int, ...]


def cut(
    based_on: SummaryRecorded | None,
    events: Sequence[ConversationEvent],
    budget: Budget,
    *,
    system_prompt: str | None,
    model: str,
    asked: bool,
    most_tokens: int,
) -> Cut | None:
    """Say what to summarise of the events after a summary; None where nothing is to be.

    The newest turns that fit into `keep_recent` stay as they are, and the newest one even if it does not, as long as it
    takes no more than half of the budget. Somebody who `asked` wants it now: at most a quarter stays. The part has
    about `most_tokens`, or is one turn.
    """
    ends, total, largest, base = _measured(based_on, events, budget, system_prompt=system_prompt, model=model)
    if not ends:
        return None
    newest = ends[-1].tokens - (ends[-2].tokens if len(ends) > 1 else base)
    if not (asked or exceeds(budget, total, largest)):
        return None
    whole = ends[-1].tokens - base
    keep = min(budget.keep_recent, whole // 4) if asked else budget.keep_recent
    last = next(n for n, end in enumerate(ends) if ends[-1].tokens - end.tokens <= keep)
    if last == len(ends) - 1 and last > 0 and not asked and newest <= budget.tokens // 2:
        last -= 1
    fitting = [n for n, end in enumerate(ends[: last + 1]) if end.tokens - base <= most_tokens]
    end = ends[fitting[-1] if fitting else 0]
    part = [event for event in events if event.seq <= end.seq and event.seq not in end.waiting]
    seen = WorkingSet(system_prompt=None, model=model, result_bytes=budget.result_bytes).fold(part)
    return Cut(
        based_on=based_on,
        from_seq=based_on.to_seq + 1 if based_on else 1,
        to_seq=end.seq,
        carried=end.waiting,
        context_seq=events[-1].seq,
        messages=seen.messages(),
        resources=_resources([*(based_on.resources if based_on else ()), *_touched(part)]),
        tokens=end.tokens - base,
        tokens_before=total,
    )


def after(summary: SummaryRecorded | None, events: Iterable[ConversationEvent]) -> list[ConversationEvent]:
    """Return those of these events that a summary does not stand for."""
    if summary is None:
        return list(events)
    carried = set(summary.carried)
    return [event for event in events if event.seq > summary.to_seq or event.seq in carried]


def first_needed(summary: SummaryRecorded | None) -> int:
    """Return the seq of the first event that a working set with this summary may need."""
    return min([summary.to_seq + 1, *summary.carried]) if summary else 1


def _measured(
    based_on: SummaryRecorded | None,
    events: Sequence[ConversationEvent],
    budget: Budget,
    *,
    system_prompt: str | None,
    model: str,
) -> tuple[list[_End], int, int, int]:
    """Return the ends of turns, how large everything is, the largest turn, and what comes before the events."""
    content = based_on.content if based_on else None
    growing = WorkingSet(system_prompt=system_prompt, model=model, summary=content, result_bytes=budget.result_bytes)
    base = growing.tokens()
    unanswered: dict[str, UserMsg] = {}
    ends: list[_End] = []
    for event in events:
        growing.fold([event])
        match event:
            case UserMsg() if event.respond:
                unanswered[event.message_id] = event
            case TurnStarted():
                for message_id in event.answers:
                    unanswered.pop(message_id, None)
            case AssistantMsg():
                for message in list(unanswered.values()):
                    if message.when_busy == "steer" and message.seq <= event.context_seq:
                        del unanswered[message.message_id]
            case TurnEnded():
                ends.append(_End(event.seq, growing.tokens(), tuple(one.seq for one in unanswered.values())))
    return ends, growing.tokens(), growing.largest_turn_tokens(), base


def _touched(events: Iterable[ConversationEvent]) -> list[Resource]:
    return [one for event in events if isinstance(event, ToolResult) for one in event.resources or ()]


def _resources(touched: Iterable[Resource]) -> tuple[Resource, ...]:
    """Return what was touched, each once, in the order in which it was last."""
    newest: dict[tuple[str, str], Resource] = {}
    for one in touched:
        newest.pop((one.path, one.op), None)
        newest[one.path, one.op] = one
    return tuple(newest.values())[-MOST_RESOURCES:]
