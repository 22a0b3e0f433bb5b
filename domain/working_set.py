"""What the model sees: a summary and the log after it as the messages of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from domain.events import AssistantMsg, ToolCall, ToolResult, TurnEnded, TurnStarted, UserMsg
from domain.provider_messages import (
    ProviderMessage,
    assistant_message,
    cancelled_messages,
    left_out,
    summary_message,
    tool_message,
    user_message,
)
from domain.tokens import tokens_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from domain.event_envelope import ConversationEvent


class UnansweredCall(Exception):
    """The log holds a tool call without a result, so that no model may be called; the message names the call."""


def working_set(
    events: Iterable[ConversationEvent],
    *,
    system_prompt: str | None,
    model: str,
    summary: str | None = None,
    result_bytes: int | None = None,
) -> list[ProviderMessage]:
    """Render the events after a summary (None: all), up to the newest, as the messages of a request to `model`.

    Raises `UnansweredCall` if a call has no result.
    """
    whole = WorkingSet(system_prompt=system_prompt, model=model, summary=summary, result_bytes=result_bytes)
    return whole.fold(events).messages()


class WorkingSet:
    """The same, event by event, for somebody who calls the model again and again.

    A message that owes a turn enters with the `turn_started` that answers it. Any other (one that steers, or that
    owes no answer) floats until it is known which reply was the first to see it, and enters before that one. So the
    messages of one request begin with all those of the request before it, byte for byte, and no reply seems to have
    ignored what it had not seen. A tool's result of more than `result_bytes` is cut from the first time on.
    """

    def __init__(
        self, *, system_prompt: str | None, model: str, summary: str | None = None, result_bytes: int | None = None
    ) -> None:
        self._model, self._result_bytes = model, result_bytes
        self._placed: list[ProviderMessage] = []
        if system_prompt:
            self._placed.append({"role": "system", "content": system_prompt})
        if summary is not None:
            self._placed.append(summary_message(summary))
        self._counted = self._counted_tokens = 0
        self._turn_at = len(self._placed)
        self._largest_turn = 0
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

    @property
    def unanswered(self) -> list[str]:
        """The calls of the newest reply that have no result yet."""
        return [call for call in self._calls if call not in self._results]

    def messages(self, *, leave_out: int = 0, unanswered: bool = False) -> list[ProviderMessage]:
        """Return the messages of a request that sees all that was folded; raises `UnansweredCall`.

        With `leave_out` 1 they say of the results of the open turn's batches only how large they are, but for those of
        the newest batch; with 2 of all. With `unanswered` calls may lack their results: such messages are sent nowhere.
        """
        if not unanswered:
            self._require_results()
        placed, batch = self._placed, self._batch()
        if leave_out:
            placed = [*placed[: self._turn_at], *map(left_out, placed[self._turn_at :])]
        if leave_out > 1:
            batch = list(map(left_out, batch))
        return [*placed, *batch, *map(user_message, self._floating)]

    def tokens(self) -> int:
        """Return about how many tokens the messages have; open calls are counted without their results."""
        self._counted_tokens += tokens_of(self._placed[self._counted :])
        self._counted = len(self._placed)
        return self._counted_tokens + self._unplaced_tokens()

    def largest_turn_tokens(self, *, plus: int = 0) -> int:
        """Return the same of the largest turn alone, if the newest one had so many more."""
        return max(self._largest_turn, tokens_of(self._placed[self._turn_at :]) + self._unplaced_tokens() + plus)

    def _unplaced_tokens(self) -> int:
        return tokens_of([*self._batch(), *map(user_message, self._floating)])

    def _hear(self, event: UserMsg) -> None:
        if event.respond and event.when_busy != "steer":
            self._waiting[event.message_id] = event
        else:
            self._floating.append(event)

    def _begin(self, event: TurnStarted) -> None:
        self._place_batch()
        self._largest_turn = self.largest_turn_tokens()
        self._turn_at = len(self._placed)
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
        self._require_results()
        self._placed += self._batch()
        self._reply, self._calls, self._results = None, {}, {}

    def _require_results(self) -> None:
        if self.unanswered:
            raise UnansweredCall(f"no result yet: {', '.join(sorted(self.unanswered))}")

    def _batch(self) -> list[ProviderMessage]:
        """Render the newest reply, and every call of it followed by its result."""
        if self._reply is None:
            return []
        said = assistant_message(self._reply, list(self._calls.values()), self._model)
        results = (self._results[call] for call in self._calls if call in self._results)
        return [*([said] if said else []), *(tool_message(result, self._result_bytes) for result in results)]
