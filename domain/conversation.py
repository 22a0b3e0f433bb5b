"""The Conversation aggregate: its commands check the rules and trigger events, or raise a `DomainError`.

Every command takes ``now`` and leaves what it decided in `pending_events`. Run again with the same inputs on a
conversation that has moved on it decides anew: so concurrent writers never lose or repeat a decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from domain import events
from domain.decisions import Inquiry
from domain.errors import (
    ConversationBusy,
    ConversationEnded,
    ConversationExists,
    ConversationIncomplete,
    InvalidInput,
    StaleResolution,
)
from domain.parts import text_part
from domain.text import clean
from domain.turns import TurnDecisions
from domain.wire import dumps

if TYPE_CHECKING:
    from datetime import datetime

    from domain.conversation_state import OpenCall
    from domain.decisions import Decision, Message, Rescheduling
    from domain.scope import Actor

MAX_WAITING = 1_000
"""So many messages may wait: the turn that answers them names them all in one event."""
_FITS = {"approval": {"approve", "edit", "reject"}, "elicitation": {"answer", "reject"}, "client": {"answer", "reject"}}
_OUTCOMES: dict[str, events.ResolutionOutcome] = {
    "approve": "approved",
    "edit": "edited",
    "reject": "rejected",
    "answer": "answered",
}


class Conversation(TurnDecisions):
    """A conversation and what people may do with it; what workers decide about its turns is in `TurnDecisions`."""

    def start(
        self,
        *,
        tenant: str,
        owner: str,
        title: str | None,
        settings: dict[str, Any],
        metadata: dict[str, Any],
        now: datetime,
        actor: Actor,
    ) -> None:
        """Begin the conversation; raises `ConversationExists` if it has begun."""
        if self.version:
            raise ConversationExists("this id is taken; choose another one")
        self._trigger(
            events.ConversationStarted,
            now=now,
            actor=actor,
            tenant=tenant,
            owner=owner,
            title=title,
            settings=settings,
            metadata=metadata,
        )

    def complete_fork(self, *, now: datetime, actor: Actor) -> None:
        """Say that the copies are whole: from here on the fork owes what is open in it, and takes commands.

        Raises `ConversationExists` if that was said before.
        """
        if not self.copying:
            raise ConversationExists("the fork is whole already")
        self._trigger(events.ForkCompleted, now=now, actor=actor)

    def change(
        self, *, title: str | None, settings: dict[str, Any], metadata: dict[str, Any], now: datetime, actor: Actor
    ) -> None:
        """Put another title (None: the same), and these whole settings and metadata, in force from the next turn."""
        self._accepts()
        self._trigger(
            events.ConversationChanged, now=now, actor=actor, title=title, settings=settings, metadata=metadata
        )

    @property
    def busy(self) -> bool:
        """Whether a turn is open or a message waits for one."""
        return self.turn is not None or bool(self.waiting)

    @property
    def queued(self) -> int:
        """How many messages wait for a later turn than the open one."""
        return sum(message.when_busy != "steer" for message in self.waiting.values()) if self.turn else 0

    def send_message(self, message: Message, *, now: datetime, actor: Actor, partial_text: str | None = None) -> None:
        """Record what a person said, by its `when_busy`; `partial_text` is what an interrupted reply had said so far.

        Raises `ConversationBusy` for ``reject``, `TooLarge`, `InvalidInput` for a message_id that already waits.
        """
        self._accepts()
        if clean(message.message_id) in self.waiting:
            raise InvalidInput("message_id", "another message with this id waits for its answer; use a new one")
        if message.respond and self.busy:
            if len(self.waiting) >= MAX_WAITING:
                raise ConversationBusy(f"{MAX_WAITING:,} messages wait for an answer; send it again later")
            if message.when_busy == "reject":
                raise ConversationBusy("a turn is open or a message waits for one")
            if message.when_busy == "interrupt":
                self._stop("interrupted", now=now, actor=actor, partial_text=partial_text)
        self._trigger(
            events.UserMsg,
            now=now,
            actor=actor,
            message_id=message.message_id,
            role=message.role,
            content=message.content,
            metadata=message.metadata,
            respond=message.respond,
            when_busy=message.when_busy,
        )

    def question(self, tool_call_id: str, now: datetime) -> OpenCall:
        """Return the call whose question is open; `StaleResolution` where none is or its deadline has passed."""
        self._accepts()
        call = self.calls.get(tool_call_id)
        if call is None or call.question is None:
            raise StaleResolution("the tool call does not wait for an answer")
        if call.question.expires_at is not None and call.question.expires_at <= now:
            raise StaleResolution("the tool call's deadline has passed")
        return call

    def resolve(self, decision: Decision, *, now: datetime, actor: Actor) -> None:
        """Record a person's or client's decision on a pending call, with what follows from it at once.

        Raises `StaleResolution` if the call is not pending or waits for another kind of decision.
        """
        call = self.question(decision.tool_call_id, now)
        kind = call.question.kind if call.question else "approval"
        if decision.outcome not in _FITS[kind]:
            raise StaleResolution(f"the tool call waits for one of: {', '.join(sorted(_FITS[kind]))}")
        outcome = _OUTCOMES[decision.outcome]
        resolution = self._resolution(
            call,
            outcome,
            now=now,
            actor=actor,
            args=decision.args if outcome == "edited" else None,
            answer=decision.answer if outcome == "answered" else None,
            reason=decision.reason,
        )
        match outcome:
            case "rejected":
                said = f"A person rejected this call. Reason: {decision.reason or 'none given'}"
                self._result(call, "rejected", [text_part(said)], now=now, actor=actor, cause=resolution.event_id)
            case "answered":
                said = decision.answer if isinstance(decision.answer, str) else dumps(clean(decision.answer))
                self._result(call, "ok", [text_part(said)], now=now, actor=actor, cause=resolution.event_id)
            case "approved" | "edited" if call.executor == "client":
                inquiry = decision.inquiry or Inquiry("client", call.name)
                self._suspend(call, inquiry, now=now, cause=resolution.event_id)

    def reschedule(self, rescheduling: Rescheduling, *, now: datetime, actor: Actor) -> None:
        """Give a pending call another deadline (a time with its zone), or none.

        Raises `StaleResolution` if it is not pending, `InvalidInput` for a time without a zone.
        """
        call = self.question(rescheduling.tool_call_id, now)
        assert call.question is not None
        if rescheduling.expires_at is not None and rescheduling.expires_at.tzinfo is None:
            raise InvalidInput("expires_at", "a time needs its zone; add Z or an offset")
        self._trigger(
            events.Suspension,
            now=now,
            actor=actor,
            cause=call.question.event_id,
            tool_call_id=call.tool_call_id,
            kind=call.question.kind,
            prompt=call.question.prompt,
            response_schema=call.question.response_schema,
            expires_at=rescheduling.expires_at,
        )

    def cancel(self, *, reason: str | None, now: datetime, actor: Actor, partial_text: str | None = None) -> bool:
        """Stop the open turn, else the messages that wait for one; False (nothing recorded) when there is neither.

        Messages that wait behind the open turn are answered by the next one.
        """
        self._accepts()
        if not self.busy:
            return False
        self._stop(reason, now=now, actor=actor, partial_text=partial_text)
        return True

    def end(self, *, reason: str | None, now: datetime, actor: Actor, partial_text: str | None = None) -> None:
        """Accept nothing more; what runs is stopped in the same append."""
        self._accepts()
        if self.turn is not None:
            self._stop(reason, now=now, actor=actor, partial_text=partial_text)
        self._trigger(events.ConversationFinished, now=now, actor=actor, reason=reason)

    def _accepts(self) -> None:
        if self.ended:
            raise ConversationEnded("the conversation was ended; start a new one")
        if self.copying:
            raise ConversationIncomplete

    def _stop(self, reason: str | None, *, now: datetime, actor: Actor, partial_text: str | None) -> None:
        if self.turn is None:
            self._claim(now=now)
            partial_text = None  # nobody has begun to answer what only waits
        self._close("cancelled", reason, now=now, actor=actor, partial_text=partial_text)
