"""What a log owes at its end, in words: what would run if it were taken in."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from domain.owes import AwaitInput, CallModel, CloseTurn, Expire, Owed, RunTools, StartTurn, owes
from projections.agenda import AGENDA
from projections.projection import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from domain.conversation import Conversation
    from projections.event import Event


class OpenWork:
    """The work in a conversation, which somebody else folds."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._agenda = Rows(AGENDA, conversation.id)

    def fold(self, events: Sequence[Event]) -> None:
        """Fold the next events of both streams."""
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
