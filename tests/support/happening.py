"""A conversation that lives through some seconds: commands at times, and the log that they leave."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, cast

from domain.conversation import Conversation
from projections.event import Event
from tests.support.given import ADA, CONVERSATION, NOW, stored

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from domain.event_envelope import ConversationEvent


class Happening:
    """Begins with a conversation that was just started."""

    def __init__(self) -> None:
        self._conversation, self._now = Conversation.at(CONVERSATION), NOW
        self.log: list[Event] = []
        self.then(
            0, lambda c, now: c.start(tenant="a", owner="ada", title=None, settings={}, metadata={}, now=now, actor=ADA)
        )

    def then(self, after_s: float, command: Callable[[Conversation, datetime], Any]) -> Self:
        """Run a command so many seconds later."""
        self._now += timedelta(seconds=after_s)
        command(self._conversation, self._now)
        decided = cast("list[ConversationEvent]", list(self._conversation.collect_events()))
        self.log += [Event(stored(event), CONVERSATION) for event in decided]
        return self
