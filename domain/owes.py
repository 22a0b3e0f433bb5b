"""What the log owes: the one pure function that drives the agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from domain.conversation_settings import MAX_ATTEMPTS, MAX_STEPS

if TYPE_CHECKING:
    from datetime import datetime

    from domain.conversation import Conversation
    from domain.events import TurnFailure


@dataclass(frozen=True, slots=True)
class StartTurn:
    """A turn that answers these messages."""

    messages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CallModel:
    """The next model call of the open turn."""


@dataclass(frozen=True, slots=True)
class RunTools:
    """Server calls to run, under these same ids always."""

    calls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AwaitInput:
    """Nothing until somebody answers one of these calls, or until the earliest deadline."""

    pending: tuple[str, ...]
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Expire:
    """Calls whose deadline has passed."""

    calls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CloseTurn:
    """The end of a turn that may not go on; `detail` says for people what `reason` leaves open."""

    reason: TurnFailure
    detail: str | None = None


Owed = StartTurn | CallModel | RunTools | AwaitInput | Expire | CloseTurn


def owes(conversation: Conversation, now: datetime) -> tuple[Owed, ...]:
    """Say what a conversation owes at a time; several things at once in a mixed batch, nothing when it is idle."""
    if conversation.ended or conversation.copying:
        return ()
    turn = conversation.turn
    if turn is None:
        return (StartTurn(tuple(conversation.waiting)),) if conversation.waiting else ()
    if turn.resumes >= int(turn.settings.get("max_attempts") or MAX_ATTEMPTS):
        return (CloseTurn("max_attempts"),)
    if conversation.calls:
        return _owed_by_calls(conversation, now)
    if turn.step >= int(turn.settings.get("max_steps") or MAX_STEPS):
        return (CloseTurn("max_steps"),)
    if spent := _spent_up(turn.settings, turn.tokens, conversation.spent_usd):
        return (CloseTurn("budget", spent),)
    return (CallModel(),)


def _spent_up(settings: dict[str, Any], tokens: int, spent_usd: float) -> str | None:
    """Say why a turn may make no further call, if so: what runs is never cut, so the last one may have gone beyond."""
    max_tokens, max_usd = settings.get("max_tokens_per_turn"), settings.get("max_cost_usd")
    if max_tokens is not None and tokens >= max_tokens:
        return f"{tokens} of {max_tokens} tokens of this turn"
    if max_usd is not None and spent_usd >= max_usd:
        return f"{_amount(spent_usd)} of {_amount(max_usd)} USD of this conversation"
    return None


def _amount(usd: float) -> str:
    """Return an amount to a millionth, with two decimals at least."""
    whole, _, decimals = f"{usd:.6f}".partition(".")
    return f"{whole}.{decimals.rstrip('0'):0<2}"


def _owed_by_calls(conversation: Conversation, now: datetime) -> tuple[Owed, ...]:
    run, expired, pending = [], [], []
    deadlines = []
    for call in conversation.calls.values():
        if call.question is None:
            run.append(call.tool_call_id)
        elif call.question.expires_at is not None and call.question.expires_at <= now:
            expired.append(call.tool_call_id)
        else:
            pending.append(call.tool_call_id)
            if call.question.expires_at is not None:
                deadlines.append(call.question.expires_at)
    owed: list[Owed] = []
    if run:
        owed.append(RunTools(tuple(run)))
    if expired:
        owed.append(Expire(tuple(expired)))
    if pending:
        owed.append(AwaitInput(tuple(pending), min(deadlines, default=None)))
    return tuple(owed)
