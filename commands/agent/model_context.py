"""The messages of the next model request, kept from call to call while one runner works on a conversation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from domain.errors import ConversationNotFound
from domain.events import UserMsg
from domain.wire import decode
from domain.working_set import WorkingSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from commands.session import Session
    from domain.event_envelope import ConversationEvent
    from domain.event_store import EventStore

PAGE = 1_000


class ModelContext:
    """Reads the conversation's history once, when it is first asked for, and folds what comes after."""

    def __init__(self, store: EventStore, session: Session) -> None:
        self._store, self._session = store, session
        self._reading = asyncio.Lock()
        self._events: list[ConversationEvent] = []
        self._set: WorkingSet | None = None
        self._rendered_for: tuple[str | None, str] | None = None
        self._folded = 0

    async def refresh(self) -> int:
        """Take in the log as it is now; returns the seq up to which `messages` see it."""
        return len(await self._up_to_now())

    def messages(self, *, system_prompt: str | None, model: str) -> list[dict[str, Any]]:
        """Return the messages of a request to a model, as of the last `refresh`."""
        if self._set is None or self._rendered_for != (system_prompt, model):
            self._set, self._folded = WorkingSet(system_prompt=system_prompt, model=model), 0
            self._rendered_for = system_prompt, model
        self._set.fold(self._events[self._folded :])
        self._folded = len(self._events)
        return self._set.messages()

    async def message_metadata(self, message_ids: Sequence[str]) -> dict[str, Any]:
        """Return the metadata of the newest of these messages."""
        wanted = set(message_ids)
        for event in reversed(await self._up_to_now()):
            if isinstance(event, UserMsg) and event.message_id in wanted:
                return event.metadata
        return {}

    async def _up_to_now(self) -> list[ConversationEvent]:
        """Read what is missing, for one caller at a time; `events[i]` has the seq i + 1."""
        async with self._reading:
            newest = self._session.newest
            while len(self._events) + 1 < newest[0].seq:
                page = await self._store.read(
                    self._session.stream, after=len(self._events), before=newest[0].seq, limit=PAGE, first=True
                )
                if not page:
                    raise ConversationNotFound("the conversation was erased meanwhile")
                self._events += [decode(event) for event in page]
            self._events += newest[len(self._events) - newest[0].seq + 1 :]
            return self._events
