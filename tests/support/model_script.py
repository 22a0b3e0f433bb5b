"""What a scripted model says, as plain data that fits into JSON: replies, failures, and rules that choose them."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import BaseModel, ConfigDict

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


class Step(BaseModel):
    """One thing that the server does while it streams; exactly one field is set."""

    model_config = ConfigDict(extra="forbid")

    delta: dict[str, Any] | None = None
    gate: str | None = None
    pause_s: float | None = None
    raw: str | None = None
    drop: bool = False
    hang: bool = False


class Scripted(BaseModel):
    """One answer: with a `status` other than 200 an error body, else a stream of steps.

    `finish` None ends the stream cleanly without a finish chunk, usage or ``[DONE]``; `usage` None reports none.
    """

    model_config = ConfigDict(extra="forbid")

    status: int = 200
    headers: dict[str, str] = {}
    error: dict[str, Any] | None = None
    steps: list[Step] = []
    finish: str | None = "stop"
    usage: dict[str, Any] | None = USAGE


class Rule(BaseModel):
    """An answer for the requests that it fits: every condition that is given must hold.

    `last_text` is a regular expression searched in the text of the last message, `last_role` that message's role,
    `any_text` is searched in all messages; after `times` uses the rule is spent.
    """

    model_config = ConfigDict(extra="forbid")

    answer: Scripted
    last_text: str | None = None
    last_role: str | None = None
    any_text: str | None = None
    model: str | None = None
    times: int | None = None

    def fits(self, body: dict[str, Any]) -> bool:
        """Say whether the rule answers this request."""
        messages = body.get("messages") or [{}]
        last = messages[-1]
        return (
            self.times != 0
            and (self.model is None or body.get("model") == self.model)
            and (self.last_role is None or last.get("role") == self.last_role)
            and (self.last_text is None or re.search(self.last_text, text_of(last)) is not None)
            and (self.any_text is None or any(re.search(self.any_text, text_of(message)) for message in messages))
        )


class Script:
    """Chooses the answer to each request: first the queue in order, then the first rule that fits, then an echo."""

    def __init__(self) -> None:
        self.queue: list[Scripted] = []
        self.rules: list[Rule] = []

    def answer(self, body: dict[str, Any]) -> Scripted:
        """Return the answer to a request and use it up."""
        if self.queue:
            return self.queue.pop(0)
        for rule in self.rules:
            if rule.fits(body):
                if rule.times is not None:
                    rule.times -= 1
                return rule.answer
        last = (body.get("messages") or [{}])[-1]
        return says(("The tool said: " if last.get("role") == "tool" else "You said: ") + text_of(last))


def says(*pieces: str | Step, finish: str | None = "", usage: dict[str, Any] | None = USAGE) -> Scripted:
    """Make a reply: a string is one chunk of text; `finish` is by default what the steps call for."""
    steps = [Step(delta={"content": piece}) if isinstance(piece, str) else piece for piece in pieces]
    calls = any(step.delta and step.delta.get("tool_calls") for step in steps)
    return Scripted(steps=steps, finish=("tool_calls" if calls else "stop") if finish == "" else finish, usage=usage)


def fails(status: int, *, retry_after: str | None = None, **error: Any) -> Scripted:
    """Make a failure; `error` is merged into the body's error object (`code`, `type`, `message`, `param`)."""
    body = {"message": f"scripted {status}", "type": "scripted", "code": None, "param": None, **error}
    return Scripted(status=status, error=body, headers={"Retry-After": retry_after} if retry_after else {})


def context_window_exceeded() -> Scripted:
    """Make the failure by which OpenAI refuses a request for its length."""
    message = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
    return fails(400, code="context_length_exceeded", type="invalid_request_error", message=message, param="messages")


def thinks(text: str) -> Step:
    """Stream a chunk of reasoning."""
    return Step(delta={"reasoning_content": text})


def calls(*requests: dict[str, Any]) -> Step:
    """Stream tool calls, each made by `call` or `fragment`, in one chunk."""
    return Step(delta={"tool_calls": list(requests)})


def call(name: str, args: Any = None, *, id: str | None = "call_0", index: int | None = 0) -> dict[str, Any]:
    """Make a whole tool call; `args` is a value, or a string that is sent as it is."""
    arguments = args if isinstance(args, str) else json.dumps(args if args is not None else {})
    return {**fragment(arguments, index=index), "id": id, "type": "function"} | {
        "function": {"name": name, "arguments": arguments}
    }


def fragment(arguments: str, *, index: int | None = 0) -> dict[str, Any]:
    """Make a later fragment of a call's arguments."""
    return (
        {"index": index, "function": {"arguments": arguments}}
        if index is not None
        else {"function": {"arguments": arguments}}
    )


def gate(name: str) -> Step:
    """Hold the stream until the gate of that name is opened."""
    return Step(gate=name)


def drop() -> Step:
    """Reset the connection."""
    return Step(drop=True)


def hang() -> Step:
    """Send nothing any more, and keep the connection open."""
    return Step(hang=True)


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a chat message, whatever the form of its content."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text") or "" for part in content)
