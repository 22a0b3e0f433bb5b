"""What the model sees: the log of a conversation as the messages of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from domain.events import AssistantMsg, ToolCall, ToolResult, TurnEnded, TurnStarted, UserMsg
from domain.provider_messages import (
    ProviderMessage,
    assistant_message,
    cancelled_messages,
    tool_message,
    user_message,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from domain.event_envelope import ConversationEvent


class UnansweredCall(Exception):
    """The log holds a tool call without a result, so that no model may be called; the message names the call."""


def working_set(events: Iterable[ConversationEvent], *, system_prompt: str | None, model: str) -> list[ProviderMessage]:
    """Render a conversation's events, from its first to the newest, as the messages of a request to `model`.

    Raises `UnansweredCall` if a call has no result.
    """
    return WorkingSet(system_prompt=system_prompt, model=model).fold(events).messages()


class WorkingSet:
    """The same, event by event, for somebody who calls the model again and again.

    A message that owes a turn enters with the `turn_started` that answers it. Any other (one that steers, or that
    owes no answer) floats until it is known which reply was the first to see it, and enters before that one. So the
    messages of one request begin with all those of the request before it, byte for byte, and no reply seems to have
    ignored what it had not seen.
    """

    def __init__(self, *, system_prompt: str | None, model: str) -> None:
        self._model = model
        self._placed: list[ProviderMessage] = []
        if system_prompt:
            self._placed.append({"role": "system", "content": system_prompt})
        self._waiting: dict[str, UserMsg] = {}
        self._floating: list[UserMsg] = []
        self._reply: AssistantMsg | None = None
        self._calls: dict[str, ToolCall] = {}
        self._results: dict[str, ToolResult] = {}

    def fold(self, events: Iterable[ConversationEvent]) -> Self:
        """Take in these events, which must follow on those before; returns itself."""
        for event in events:
            match event:
                case UserMsg():
                    self._hear(event)
                case TurnStarted():
                    self._begin(event)
                case AssistantMsg():
                    self._place_batch()
                    self._place(event.context_seq)
                    self._reply = event
                case ToolCall():
                    self._calls[event.tool_call_id] = event
                case ToolResult():
                    self._results[event.tool_call_id] = event
                case TurnEnded():
                    self._end(event)
        return self

    def messages(self) -> list[ProviderMessage]:
        """Return the messages of a request that sees all that was folded; raises `UnansweredCall`."""
        return [*self._placed, *self._batch(), *map(user_message, self._floating)]

    def _hear(self, event: UserMsg) -> None:
        if event.respond and event.when_busy != "steer":
            self._waiting[event.message_id] = event
        else:
            self._floating.append(event)

    def _begin(self, event: TurnStarted) -> None:
        self._place_batch()
        answered = [self._waiting.pop(message_id) for message_id in event.answers if message_id in self._waiting]
        self._place(event.seq, answered)

    def _end(self, event: TurnEnded) -> None:
        self._place_batch()
        self._place(event.seq)
        if event.outcome == "cancelled":
            self._placed += cancelled_messages(event)

    def _place(self, up_to: int, answered: Sequence[UserMsg] = ()) -> None:
        """Let the floating messages up to that seq enter, and those that a turn answers."""
        entering = [*answered, *(message for message in self._floating if message.seq <= up_to)]
        self._placed += map(user_message, sorted(entering, key=lambda message: message.seq))
        self._floating = [message for message in self._floating if message.seq > up_to]

    def _place_batch(self) -> None:
        self._placed += self._batch()
        self._reply, self._calls, self._results = None, {}, {}

    def _batch(self) -> list[ProviderMessage]:
        """Render the newest reply, and every call of it followed by its result."""
        if self._reply is None:
            return []
        if open_calls := self._calls.keys() - self._results.keys():
            raise UnansweredCall(f"no result yet: {', '.join(sorted(open_calls))}")
        said = assistant_message(self._reply, list(self._calls.values()), self._model)
        return [*([said] if said else []), *(tool_message(self._results[call]) for call in self._calls)]
