"""The messages of the next model request, kept from call to call, and by one runner for the next."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from commands.summaries import recorded_summary
from domain.compaction import after, first_needed
from domain.errors import ConversationNotFound
from domain.events import UserMsg
from domain.wire import decode
from domain.working_set import WorkingSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from commands.session import Session
    from domain.event_envelope import ConversationEvent
    from domain.event_store import EventStore
    from domain.summary_events import SummaryRecorded

PAGE = 1_000
MOST_LEFT_OUT = 2
SLICE = 100
"""So many events are read or rendered at a time: everything else on the loop waits for them, some milliseconds."""


class ModelContext:
    """Reads what the open turn's summary does not stand for once, when it is asked for, and folds what comes after.

    `result_bytes` is how much of a tool's result is shown, `leave_out` which results of the open turn are not at all
    (see `WorkingSet.messages`); the latter goes on until the next turn. `exceeded`: the newest reply went beyond the
    conversation's budget.
    """

    def __init__(self, store: EventStore, session: Session) -> None:
        self._store, self._session = store, session
        self._reading = asyncio.Lock()
        self._begun = False
        self._turn: int | None = None
        self._summary: SummaryRecorded | None = None
        self._events: list[ConversationEvent] = []
        self._seq = 0
        self._set: WorkingSet | None = None
        self._rendered_for: tuple[str | None, str, int | None] | None = None
        self._folded = 0
        self.result_bytes: int | None = None
        self.leave_out = 0
        self.exceeded = False

    @property
    def events(self) -> int:
        """How many events are kept."""
        return len(self._events)

    @property
    def summary(self) -> SummaryRecorded | None:
        """What stands for the older part of the conversation in `messages`."""
        return self._summary

    def go_on(self, session: Session) -> None:
        """Follow another session of the same conversation, which knows the log at least as far."""
        self._session, self.exceeded = session, False

    async def refresh(self) -> int:
        """Take in the log as it is now; returns the seq up to which `messages` see it."""
        await self._up_to_now()
        return self._seq

    async def prepare(self, *, system_prompt: str | None, model: str) -> None:
        """Render what is new for a model, without keeping the loop for long."""
        rendering = self._rendering(system_prompt, model)
        while len(self._events) - self._folded > SLICE:
            self._fold(rendering, self._folded + SLICE)
            await asyncio.sleep(0)

    def messages(self, *, system_prompt: str | None, model: str) -> list[dict[str, Any]]:
        """Return the messages of a request to a model, as of the last `refresh`."""
        rendering = self._rendering(system_prompt, model)
        self._fold(rendering, len(self._events))
        return rendering.messages(leave_out=self.leave_out)

    def leave_out_more(self) -> bool:
        """Leave out more results of the open turn than in the newest `messages`; False where there are no more."""
        if self._set is None:
            return False
        before = self._set.messages(leave_out=self.leave_out)
        while self.leave_out < MOST_LEFT_OUT:
            self.leave_out += 1
            if self._set.messages(leave_out=self.leave_out) != before:
                return True
        return False

    def size(self, *, plus: int = 0) -> tuple[int, int]:
        """Return about how many tokens the newest `messages` have, and those of their largest turn."""
        if self._set is None:
            return plus, plus
        return self._set.tokens() + plus, self._set.largest_turn_tokens(plus=plus)

    async def message_metadata(self, message_ids: Sequence[str]) -> dict[str, Any]:
        """Return the metadata of the newest of these messages."""
        wanted = set(message_ids)
        for event in reversed(await self._up_to_now()):
            if isinstance(event, UserMsg) and event.message_id in wanted:
                return event.metadata
        return {}

    def _rendering(self, system_prompt: str | None, model: str) -> WorkingSet:
        if self._set is None or self._rendered_for != (system_prompt, model, self.result_bytes):
            content = self._summary.content if self._summary else None
            self._set = WorkingSet(
                system_prompt=system_prompt, model=model, summary=content, result_bytes=self.result_bytes
            )
            self._folded = 0
            self._rendered_for = system_prompt, model, self.result_bytes
        return self._set

    def _fold(self, rendering: WorkingSet, upto: int) -> None:
        rendering.fold(self._events[self._folded : upto])
        self._folded = upto

    async def _up_to_now(self) -> list[ConversationEvent]:
        """Read what is missing, for one caller at a time."""
        async with self._reading:
            await self._stand_at_summary()
            newest = self._session.newest
            while self._seq + 1 < newest[0].seq:
                page = await self._store.read(
                    self._session.stream, after=self._seq, before=newest[0].seq, limit=PAGE, first=True
                )
                if not page:
                    raise ConversationNotFound("the conversation was erased meanwhile")
                for start in range(0, len(page), SLICE):
                    self._take([decode(event) for event in page[start : start + SLICE]])
                    await asyncio.sleep(0)
            self._take([event for event in newest if event.seq > self._seq])
            return self._events

    def _take(self, events: list[ConversationEvent]) -> None:
        if events:
            self._events += after(self._summary, events)
            self._seq = events[-1].seq

    async def _stand_at_summary(self) -> None:
        """Begin anew where the open turn has another summary than what was read."""
        turn = self._session.conversation.turn
        number, to_seq = (turn.number, turn.summary_to_seq) if turn else (None, None)
        known = self._summary.to_seq if self._summary else None
        if turn is None or (self._begun and (number, to_seq) == (self._turn, known)):
            self.leave_out = self.leave_out if number == self._turn else 0
            self._turn = number
            return
        summary = None
        if to_seq is not None:  # also for one that seems known: it may have been revoked and made anew since
            summary = await recorded_summary(self._store, self._session.conversation_id, to_seq)
        self._turn, self.leave_out = number, 0
        if self._begun and (summary and summary.seq) == (self._summary and self._summary.seq):
            return
        self._begun = True
        self._summary, self._events, self._set = summary, [], None
        self._seq = first_needed(summary) - 1
