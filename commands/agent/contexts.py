"""The histories that models saw lately, kept from turn to turn: a log does not change, so only what is new is read."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from commands.agent.model_context import ModelContext

if TYPE_CHECKING:
    from uuid import UUID

    from commands.session import Session
    from domain.event_store import EventStore

MOST = 32
MOST_EVENTS = 2_000
"""A longer history is read again each time: so what is kept has a bound that no conversation moves."""


class ModelContexts:
    """Keeps the contexts of the conversations that were worked on last, each for one runner at a time."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._kept: OrderedDict[UUID, ModelContext] = OrderedDict()

    def take(self, session: Session) -> ModelContext:
        """Return a context for the session, with what was read of the conversation before."""
        context = self._kept.pop(session.conversation_id, None)
        if context is None:
            return ModelContext(self._store, session)
        context.go_on(session)
        return context

    def keep(self, conversation_id: UUID, context: ModelContext) -> None:
        """Take it back from a runner that is done with it."""
        if context.events <= MOST_EVENTS:
            self._kept[conversation_id] = context
        if len(self._kept) > MOST:
            self._kept.popitem(last=False)
