"""How far a log has come with its replies: what is said live counts only beyond that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import from_json

from domain.events import AssistantMsg, TurnEnded, TurnStarted

if TYPE_CHECKING:
    from domain.event_store import EventStore, StoredEvent

PAGE = 64
_NO_MORE_STEPS = 2**31


class Spoken:
    """The newest (turn, step) whose reply, or end, is in the log as far as it was seen."""

    def __init__(self) -> None:
        self._newest: tuple[int, int] | None = None

    @property
    def known(self) -> bool:
        """Whether an event that says so was seen."""
        return self._newest is not None

    def see(self, event: StoredEvent) -> None:
        """Take in an event of the conversation, older or newer than those seen before."""
        match event.type:
            case AssistantMsg.wire_type:
                data = from_json(event.data)
                reached = (data["turn"], data["step"])
            case TurnStarted.wire_type:
                reached = (from_json(event.data)["turn"], 0)
            case TurnEnded.wire_type:
                reached = (from_json(event.data)["turn"], _NO_MORE_STEPS)
            case _:
                return
        self._newest = max(self._newest or reached, reached)

    def covers(self, turn: int, step: int) -> bool:
        """Say whether the reply of this step is in the log, or never will be."""
        return self._newest is not None and (turn, step) <= self._newest

    async def look_back(self, store: EventStore, stream: str) -> None:
        """See a stream's events from the newest one back, until one of them says how far it is."""
        page = await store.read(stream, limit=PAGE)
        while page and not self.known:
            for event in reversed(page):
                self.see(event)
            page = await store.read(stream, before=page[0].seq, limit=PAGE)
