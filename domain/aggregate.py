"""The aggregate's frame: its small state, how it is loaded and folded, and how its commands trigger events."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID, uuid4

from eventsourcing.domain import BaseAggregate

from domain import events
from domain.errors import TooLarge
from domain.event_store import MAX_EVENT_BYTES
from domain.evolve import evolve
from domain.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from domain.conversation_state import OpenCall, OpenTurn, WaitingMessage
    from domain.event_envelope import ConversationEvent
    from domain.scope import Actor

_OF_NO_TURN = (events.UserMsg, events.ConversationChanged, events.ConversationFinished, events.UsageReported)
_BEGINNING = datetime.fromtimestamp(0, UTC)


class OpenState(BaseAggregate[UUID]):
    """What is open in one conversation: the turn, calls without results, messages without an answer."""

    def __init__(self) -> None:
        self.tenant = self.owner = ""
        self.settings: dict[str, Any] = {}
        self.settings_seq = 0
        self.metadata: dict[str, Any] = {}
        self.turns = 0
        self.turn: OpenTurn | None = None
        self.calls: dict[str, OpenCall] = {}
        self.waiting: dict[str, WaitingMessage] = {}
        self.ended = self.copying = False
        self.spent_usd = 0.0

    @classmethod
    def at(cls, conversation_id: UUID, seq: int = 0) -> Self:
        """Return a conversation that stands after its event `seq` with nothing open: a place to fold from."""
        conversation = cls.__new__(cls)
        conversation.__base_init__(conversation_id, seq, _BEGINNING)
        conversation.__init__()  # type: ignore[misc]  # the library's shell, as its "created" events make it
        return conversation

    def fold(self, log: Iterable[ConversationEvent]) -> Self:
        """Evolve by these events, which must follow on `version`; returns itself."""
        for event in log:
            event.mutate(self)
        return self

    def copied(self) -> Self:
        """Return a copy that can decide and evolve without touching this one; settings and metadata are shared."""
        twin = type(self).at(self.id, self.version)
        twin.tenant, twin.owner = self.tenant, self.owner
        twin.settings, twin.settings_seq, twin.metadata = self.settings, self.settings_seq, self.metadata
        twin.turns, twin.turn = self.turns, replace(self.turn) if self.turn else None
        twin.calls = {key: replace(call, steps=dict(call.steps)) for key, call in self.calls.items()}
        twin.waiting = dict(self.waiting)
        twin.ended, twin.copying = self.ended, self.copying
        twin.spent_usd = self.spent_usd
        return twin

    def evolve(self, event: ConversationEvent) -> None:
        """Change what is open by one event; after a copy, only a `fork_completed` of its own makes a fork whole."""
        evolve(event, self)
        if event.copied_from is not None:
            self.copying = True

    def _trigger(
        self,
        event_type: type[ConversationEvent],
        *,
        now: datetime,
        actor: Actor,
        cause: UUID | None = None,
        correlation: UUID | None = None,
        **fields: Any,
    ) -> ConversationEvent:
        """Make an event of cleaned fields, evolve by it and keep it as pending; misspelt fields are an error.

        Raises `TooLarge` for one that no store takes.
        """
        if unknown := fields.keys() - event_type.model_fields.keys():
            raise TypeError(f"{event_type.__name__} has no {', '.join(sorted(unknown))}")
        event_id = uuid4()
        if correlation is None:
            correlation = self.turn.event_id if self.turn and event_type not in _OF_NO_TURN else event_id
        event = event_type.model_validate(
            {
                **clean(fields),
                "originator_id": self.id,
                "originator_version": self.version + 1,
                "timestamp": now,
                "event_id": event_id,
                "correlation_id": correlation,
                "causation_id": cause,
                "actor": actor,
            }
        )
        size = len(event.model_dump_json(exclude_none=True).encode())
        if size > MAX_EVENT_BYTES:
            raise TooLarge(f"{size:,} bytes of JSON are more than the {MAX_EVENT_BYTES:,} of one event; send less")
        event.mutate(self)
        self.pending_events.append(event)
        return event
