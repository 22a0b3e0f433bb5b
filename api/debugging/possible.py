"""Whether an event can follow in a conversation: the rules that its command was judged by, seen from the log."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from domain import events

if TYPE_CHECKING:
    from domain.conversation import Conversation
    from domain.event_envelope import ConversationEvent

_AFTER_THE_END = (events.UsageReported,)


def refusal(event: ConversationEvent, conversation: Conversation) -> str | None:
    """Say why the event cannot come next in the conversation as it stands, None if it can.

    Numbers of turns may have gaps, so that a turn need not have the one before it.
    """
    if isinstance(event, events.ConversationStarted):
        return "the conversation has begun" if conversation.settings_seq else None
    if not conversation.settings_seq:
        return "the conversation has not begun"
    if conversation.ended and not isinstance(event, _AFTER_THE_END):
        return "the conversation has ended"
    if conversation.copying and event.copied_from is None and not isinstance(event, events.ForkCompleted):
        return "the fork is not whole"
    return _refusal(event, conversation)


@singledispatch
def _refusal(event: ConversationEvent, conversation: Conversation) -> str | None:
    return None


@_refusal.register(events.UserMsg)
def _(event: events.UserMsg, conversation: Conversation) -> str | None:
    return "a message with this id waits already" if event.message_id in conversation.waiting else None


@_refusal.register(events.TurnStarted)
def _(event: events.TurnStarted, conversation: Conversation) -> str | None:
    if conversation.turn is not None:
        return f"turn {conversation.turn.number} has not ended"
    if not conversation.waiting.keys() & set(event.answers):
        return "no message that it answers waits"
    return None


@_refusal.register(events.TurnResumed)
def _(event: events.TurnResumed, conversation: Conversation) -> str | None:
    return _not_held(event.turn, event.attempt - 1, conversation)


@_refusal.register(events.AssistantMsg)
def _(event: events.AssistantMsg, conversation: Conversation) -> str | None:
    if reason := _not_held(event.turn, event.attempt, conversation):
        return reason
    if reason := _open_calls(conversation):
        return reason
    done = conversation.turn.step if conversation.turn else 0
    return f"step {done} is the newest of its turn" if event.step != done + 1 else None


@_refusal.register(events.ToolCall)
def _(event: events.ToolCall, conversation: Conversation) -> str | None:
    if reason := _not_held(event.turn, None, conversation):
        return reason
    return "the turn has no reply that asked for it" if conversation.turn and not conversation.turn.step else None


@_refusal.register(events.Suspension)
@_refusal.register(events.ToolStep)
def _(event: events.Suspension | events.ToolStep, conversation: Conversation) -> str | None:
    return _not_open(event.tool_call_id, conversation)


@_refusal.register(events.Resolution)
def _(event: events.Resolution, conversation: Conversation) -> str | None:
    if reason := _not_open(event.tool_call_id, conversation):
        return reason
    return None if conversation.calls[event.tool_call_id].question else "nobody was asked"


@_refusal.register(events.ToolResult)
def _(event: events.ToolResult, conversation: Conversation) -> str | None:
    if reason := _not_open(event.tool_call_id, conversation):
        return reason
    return "the call waits for an answer" if conversation.calls[event.tool_call_id].question else None


@_refusal.register(events.TurnEnded)
def _(event: events.TurnEnded, conversation: Conversation) -> str | None:
    return _not_held(event.turn, None, conversation) or _open_calls(conversation)


@_refusal.register(events.ConversationFinished)
def _(event: events.ConversationFinished, conversation: Conversation) -> str | None:
    return f"turn {conversation.turn.number} has not ended" if conversation.turn else None


def _not_held(turn: int, attempt: int | None, conversation: Conversation) -> str | None:
    if conversation.turn is None or conversation.turn.number != turn:
        return f"turn {turn} is not open"
    if attempt not in (None, conversation.turn.attempt):
        return f"attempt {conversation.turn.attempt} holds the turn"
    return None


def _open_calls(conversation: Conversation) -> str | None:
    return f"no result yet of {', '.join(conversation.calls)}" if conversation.calls else None


def _not_open(tool_call_id: str, conversation: Conversation) -> str | None:
    return None if tool_call_id in conversation.calls else "the call is not open"
