"""What is open in a conversation, kept between batches: the aggregate's own state, cut down to what is asked of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from domain.conversation import Conversation
from domain.owes import AwaitInput, Owed, owes
from domain.snapshots import dump, restore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projections.event import Event

_KEPT = ("turn", "calls", "waiting", "ended", "copying", "settings", "spent_usd")
_LIMITS = ("max_steps", "max_attempts", "max_cost_usd", "max_tokens_per_turn")
"""The settings that decide what is owed."""

_LASTING = frozenset({"conversation_started", "conversation_changed", "fork_completed", "conversation_ended"})
"""Types of events that still count when the next turn has started: all others it answers, or makes an end of."""

_NOTHING = dump(Conversation.at(UUID(int=0)))
_BEFORE_ALL_DEADLINES = datetime.min.replace(tzinfo=UTC)


def load_state(conversation_id: UUID, state: dict[str, Any] | None) -> Conversation:
    """Return a conversation to evolve from a `keep_state`; it can say what is open and owed, and no more."""
    if state is None:
        return Conversation.at(conversation_id)
    return restore(conversation_id, _NOTHING | state)


def keep_state(conversation: Conversation) -> dict[str, Any] | None:
    """Return what is open as JSON's types, None for nothing: such a conversation may be folded on from nothing.

    Arguments, schemas and all settings but limits are left out: nobody asks for them here, and they may be large.
    """
    _strip(conversation)
    kept = {name: value for name, value in dump(conversation).items() if name in _KEPT and value != _NOTHING[name]}
    return kept or None


def skim(conversation: Conversation, events: Sequence[Event]) -> Sequence[Event]:
    """Evolve to where the newest `turn_started` stands, past all that ends with it; return it and what follows.

    What it goes past is not decoded: it need not be readable any more, as for commands, which read no further back.
    """
    newest = next((n for n in range(len(events) - 1, 0, -1) if events[n].type == "turn_started"), 0)
    for event in events[:newest]:
        if event.type in _LASTING:
            conversation.evolve(event.decoded)
    if newest:
        conversation.waiting = {}
    return events[newest:]


def owed_at_any_time(conversation: Conversation) -> tuple[Owed, ...]:
    """Say what is owed while no deadline has passed: a function of the log alone."""
    return owes(conversation, _BEFORE_ALL_DEADLINES)


def only_awaits(owed: Sequence[Owed]) -> bool:
    """Whether something is owed, and only people and clients can go on."""
    return bool(owed) and all(isinstance(one, AwaitInput) for one in owed)


def rests(conversation: Conversation) -> bool:
    """Whether nothing is owed, or only people and clients can go on."""
    if conversation.turn is not None and not conversation.calls and not conversation.copying:
        return False  # the model is to be called, or the turn to be closed
    owed = owed_at_any_time(conversation)
    return not owed or only_awaits(owed)


def _strip(conversation: Conversation) -> None:
    conversation.settings = _limits(conversation.settings)
    if conversation.turn is None:
        conversation.spent_usd = 0.0  # the next turn_started tells
    else:
        conversation.turn.settings = _limits(conversation.turn.settings)
    for call in conversation.calls.values():
        call.args, call.steps = None, {}
        if call.question is not None:
            call.question.response_schema = None


def _limits(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: settings[name] for name in _LIMITS if name in settings}
