"""Noticing in the log that another worker goes on with a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domain.errors import Superseded
from domain.events import AssistantMsg, ToolStep, TurnEnded, TurnResumed

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any

    from commands.agent.surroundings import Decide
    from commands.session import Session
    from domain.conversation import Conversation
    from domain.event_envelope import ConversationEvent


class Fence:
    """Stands between a worker and the log: once another worker has written there, nothing passes any more.

    Claims tell who should work on a conversation, but a worker that was stopped does not know that it lost one. The
    log does: people never write what only workers write, and never leave a turn open that they began.
    """

    def __init__(self, session: Session) -> None:
        """What the session has read so far is no news: whoever wrote it has let go, or is about to be taken over."""
        self._session = session
        self._overtaken = False
        self._seen, self._turn = len(session.news), _open_turn(session.conversation)

    @property
    def overtaken(self) -> bool:
        """Whether another worker has written since this one began, as far as the session has read."""
        news = self._session.news[self._seen :]
        turn = _open_turn(self._session.conversation)
        if turn not in (None, self._turn) or any(map(_by_a_worker, news)):
            self._overtaken = True
        self._seen, self._turn = self._seen + len(news), turn
        return self._overtaken

    def guarded(self, decide: Decide) -> Decide:
        """Return the decision, `Superseded` as soon as another worker has written."""

        def decide_unless_overtaken(conversation: Conversation, now: datetime) -> Any:
            if self.overtaken:
                raise Superseded("another worker goes on with the conversation")
            return decide(conversation, now)

        return decide_unless_overtaken

    def appended(self) -> None:
        """Say that what the session appended just now, after a guarded decision, is this worker's own."""
        self._seen, self._turn = len(self._session.news), _open_turn(self._session.conversation)


def _open_turn(conversation: Conversation) -> tuple[int, int] | None:
    return (conversation.turn.number, conversation.turn.attempt) if conversation.turn else None


def _by_a_worker(event: ConversationEvent) -> bool:
    if isinstance(event, TurnEnded):
        return event.outcome != "cancelled"
    return isinstance(event, (TurnResumed, AssistantMsg, ToolStep))
