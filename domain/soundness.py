"""What holds of every log that the rules of conversations have made, judged event by event."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from domain import events
from domain.conversation import Conversation
from domain.summary_events import SummaryRecorded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from domain.event_envelope import ConversationEvent


class Soundness:
    """The log of one conversation, and of its summaries, as far as it was judged."""

    def __init__(self, conversation_id: UUID) -> None:
        self.conversation = Conversation.at(conversation_id)
        self._called: set[str] = set()
        self._ends = {0}

    def faults(self, event: ConversationEvent) -> list[str]:
        """Say what is wrong with the next event, and take it in."""
        conversation = self.conversation
        if isinstance(event, SummaryRecorded):
            return (
                [] if event.to_seq in self._ends else [f"a summary ends at event {event.to_seq}, where no turn ended"]
            )
        if event.wire_type not in events.EVENT_TYPES:
            return []
        found = [*_faults_of_any(event, conversation), *_faults(event, conversation)]
        if isinstance(event, events.ToolCall):
            if event.tool_call_id in self._called:
                found.append(f"the id {event.tool_call_id} had a call before")
            self._called.add(event.tool_call_id)
        conversation.evolve(event)  # the ones before it may have been left out
        if isinstance(event, events.TurnEnded):
            self._ends.add(event.seq)
        return found


def _faults_of_any(event: ConversationEvent, conversation: Conversation) -> Iterator[str]:
    if (event.seq == 1) != isinstance(event, events.ConversationStarted):
        yield "a conversation starts with its first event"
    if conversation.ended and not isinstance(event, events.UsageReported):
        yield "the conversation had ended"
    if conversation.copying and event.copied_from is None and not isinstance(event, events.ForkCompleted):
        yield "the fork was not whole"


@singledispatch
def _faults(event: ConversationEvent, conversation: Conversation) -> Iterator[str]:
    yield from ()


@_faults.register(events.TurnStarted)
def _(event: events.TurnStarted, conversation: Conversation) -> Iterator[str]:
    if conversation.turn is not None:
        yield f"turn {conversation.turn.number} had not ended"
    if event.turn != conversation.turns + 1:
        yield f"turn {event.turn} comes after turn {conversation.turns}"
    if unknown := [message for message in event.answers if message not in conversation.waiting]:
        yield f"it answers what does not wait: {', '.join(unknown)}"
    if event.settings_seq != conversation.settings_seq:
        yield f"the settings in force are those of event {conversation.settings_seq}, not {event.settings_seq}"


@_faults.register(events.TurnResumed)
def _(event: events.TurnResumed, conversation: Conversation) -> Iterator[str]:
    yield from _outside(event.turn, conversation)
    if conversation.turn is not None and event.attempt != conversation.turn.attempt + 1:
        yield f"attempt {event.attempt} comes after attempt {conversation.turn.attempt}"


@_faults.register(events.AssistantMsg)
def _(event: events.AssistantMsg, conversation: Conversation) -> Iterator[str]:
    yield from _outside(event.turn, conversation)
    if conversation.turn is not None and event.step != conversation.turn.step + 1:
        yield f"step {event.step} comes after step {conversation.turn.step}"
    if conversation.calls:
        yield f"the model was called while calls had no result: {', '.join(conversation.calls)}"
    if event.context_seq >= event.seq:
        yield f"it has seen event {event.context_seq}, which was not there yet"


@_faults.register(events.ToolCall)
def _(event: events.ToolCall, conversation: Conversation) -> Iterator[str]:
    yield from _outside(event.turn, conversation)


@_faults.register(events.Suspension)
@_faults.register(events.ToolStep)
@_faults.register(events.ToolResult)
def _(event: events.Suspension | events.ToolStep | events.ToolResult, conversation: Conversation) -> Iterator[str]:
    if event.tool_call_id not in conversation.calls:
        yield f"no call {event.tool_call_id} is open"


@_faults.register(events.Resolution)
def _(event: events.Resolution, conversation: Conversation) -> Iterator[str]:
    call = conversation.calls.get(event.tool_call_id)
    if call is None or call.question is None:
        yield f"no question about {event.tool_call_id} is open"


@_faults.register(events.TurnEnded)
def _(event: events.TurnEnded, conversation: Conversation) -> Iterator[str]:
    yield from _outside(event.turn, conversation)
    if conversation.calls:
        yield f"calls have no result: {', '.join(conversation.calls)}"


@_faults.register(events.ConversationFinished)
def _(event: events.ConversationFinished, conversation: Conversation) -> Iterator[str]:
    if conversation.turn is not None:
        yield f"turn {conversation.turn.number} had not ended"


def _outside(turn: int, conversation: Conversation) -> Iterator[str]:
    if conversation.turn is None or conversation.turn.number != turn:
        yield f"turn {turn} is not open"
