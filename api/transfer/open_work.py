"""What a log owes at its end, in words: what would run if it were taken in."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from domain.conversation import Conversation
from domain.events import EVENT_TYPES
from domain.owes import AwaitInput, CallModel, CloseTurn, Expire, Owed, RunTools, StartTurn, owes
from projections.agenda import AGENDA
from projections.event import Event
from projections.projection import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from domain.event_store import StoredEvent


class OpenWork:
    """One conversation's log, folded as it comes."""

    def __init__(self, conversation_id: UUID) -> None:
        self._conversation = Conversation.at(conversation_id)
        self._agenda = Rows(AGENDA, conversation_id)

    def fold(self, stored: Sequence[StoredEvent]) -> None:
        """Fold the next events of both streams, of types that this code knows."""
        events = [Event(event, self._conversation.id) for event in stored]
        self._conversation.fold(event.decoded for event in events if event.type in EVENT_TYPES)
        AGENDA.fold(self._agenda, events)
        self._agenda.take_changes()

    def said(self) -> list[str]:
        """Say what is owed by now; nothing if the log is closed."""
        owed = [_said(one, self._conversation) for one in owes(self._conversation, datetime.now(UTC))]
        compaction = self._agenda.get("compaction")
        return [*owed, *(["summarise what is older"] if compaction and compaction["at_once"] else [])]


def _said(owed: Owed, conversation: Conversation) -> str:
    turn = conversation.turn
    match owed:
        case StartTurn(messages):
            return f"start a turn for {len(messages)} message{'s' * (len(messages) > 1)}"
        case CallModel():
            return f"call the model for step {turn.step + 1 if turn else 1} of turn {turn.number if turn else 1}"
        case RunTools(calls):
            return f"run {_named(calls, conversation)}"
        case AwaitInput(calls, until):
            return f"wait for answers to {_named(calls, conversation)}{f' until {until:%F %T} UTC' if until else ''}"
        case Expire(calls):
            return f"let expire {_named(calls, conversation)}"
        case CloseTurn(reason):
            return f"end the turn as failed: {reason}"


def _named(calls: Sequence[str], conversation: Conversation) -> str:
    return ", ".join(f"{conversation.calls[call].name} ({call})" for call in calls)
