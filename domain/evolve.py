"""How each event changes what is open; assigns only, so that yesterday's facts always load."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from domain import events
from domain.conversation_state import OpenCall, OpenTurn, Question, WaitingMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from domain.aggregate import OpenState
    from domain.event_envelope import ConversationEvent
    from domain.usage import Usage


@singledispatch
def evolve(event: ConversationEvent, conversation: OpenState) -> None:
    """Change the conversation by one event."""


@evolve.register(events.ConversationStarted)
def _(event: events.ConversationStarted, conversation: OpenState) -> None:
    conversation.tenant, conversation.owner = event.tenant, event.owner
    conversation.settings, conversation.settings_seq = event.settings, event.seq
    conversation.metadata = event.metadata
    conversation.copying = event.forked_from is not None


@evolve.register(events.ForkCompleted)
def _(event: events.ForkCompleted, conversation: OpenState) -> None:
    conversation.copying = False


@evolve.register(events.ConversationChanged)
def _(event: events.ConversationChanged, conversation: OpenState) -> None:
    conversation.settings, conversation.settings_seq = event.settings, event.seq
    conversation.metadata = event.metadata
    _spent(conversation, event, None, [event.usage] if event.usage else ())


@evolve.register(events.UserMsg)
def _(event: events.UserMsg, conversation: OpenState) -> None:
    if event.respond:
        conversation.waiting[event.message_id] = WaitingMessage(
            event.message_id, event.seq, event.when_busy, event.actor, event.event_id
        )


@evolve.register(events.TurnStarted)
def _(event: events.TurnStarted, conversation: OpenState) -> None:
    for message_id in event.answers:
        conversation.waiting.pop(message_id, None)
    conversation.calls = {}
    conversation.turns = event.turn
    conversation.turn = OpenTurn(
        number=event.turn,
        seq=event.seq,
        event_id=event.event_id,
        actor=event.actor,
        settings=conversation.settings,
        last_event_id=event.event_id,
        summary_to_seq=event.summary_to_seq,
    )
    if event.copied_from is None:
        conversation.spent_usd = event.spent_usd or 0.0


@evolve.register(events.TurnResumed)
def _(event: events.TurnResumed, conversation: OpenState) -> None:
    if turn := conversation.turn:
        turn.attempt, turn.last_event_id = event.attempt, event.event_id
        turn.resumes += 1
        if event.summary_to_seq is not None:
            turn.summary_to_seq = event.summary_to_seq


@evolve.register(events.AssistantMsg)
def _(event: events.AssistantMsg, conversation: OpenState) -> None:
    if turn := conversation.turn:
        turn.step, turn.resumes, turn.last_event_id = event.step, 0, event.event_id
        _spent(conversation, event, event.turn, [event.usage] if event.usage else ())
        for message in list(conversation.waiting.values()):
            if message.when_busy == "steer" and turn.seq < message.seq <= event.context_seq:
                turn.actor = message.actor
                del conversation.waiting[message.message_id]


@evolve.register(events.ToolCall)
def _(event: events.ToolCall, conversation: OpenState) -> None:
    conversation.calls[event.tool_call_id] = OpenCall(
        event.tool_call_id, event.name, event.args, event.executor, event.event_id
    )


@evolve.register(events.Suspension)
def _(event: events.Suspension, conversation: OpenState) -> None:
    if call := conversation.calls.get(event.tool_call_id):
        call.question = Question(event.kind, event.prompt, event.response_schema, event.expires_at, event.event_id)


@evolve.register(events.Resolution)
def _(event: events.Resolution, conversation: OpenState) -> None:
    _progressed(conversation)
    if call := conversation.calls.get(event.tool_call_id):
        call.question, call.event_id = None, event.event_id
        if event.outcome in ("approved", "edited"):
            call.approved_by = event.by
        if event.outcome == "edited":
            call.args, call.edited = event.args, True


@evolve.register(events.ToolStep)
def _(event: events.ToolStep, conversation: OpenState) -> None:
    _progressed(conversation)
    if call := conversation.calls.get(event.tool_call_id):
        call.steps[event.step] = event.n


@evolve.register(events.ToolResult)
def _(event: events.ToolResult, conversation: OpenState) -> None:
    _progressed(conversation)
    conversation.calls.pop(event.tool_call_id, None)
    if conversation.turn:
        conversation.turn.last_event_id = event.event_id


@evolve.register(events.TurnEnded)
def _(event: events.TurnEnded, conversation: OpenState) -> None:
    _spent(conversation, event, event.turn, event.usage or ())
    conversation.turn, conversation.calls = None, {}


@evolve.register(events.UsageReported)
def _(event: events.UsageReported, conversation: OpenState) -> None:
    _spent(conversation, event, event.turn, event.usage)


@evolve.register(events.ConversationFinished)
def _(event: events.ConversationFinished, conversation: OpenState) -> None:
    conversation.ended = True


def _progressed(conversation: OpenState) -> None:
    if conversation.turn:
        conversation.turn.resumes = 0


def _spent(conversation: OpenState, event: ConversationEvent, turn: int | None, usages: Sequence[Usage]) -> None:
    """Count what calls cost; what a fork copied was paid where it came from."""
    if event.copied_from is not None:
        return
    for usage in usages:
        conversation.spent_usd += usage.cost_usd or 0.0
        if conversation.turn is not None and conversation.turn.number == turn:
            conversation.turn.tokens += usage.tokens
