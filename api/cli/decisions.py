"""From what a person types at a question to the body of a resolution."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from domain.conversation_state import OpenCall

PROMPTS = {
    "approval": "approve, edit or reject? ",
    "elicitation": "your answer: ",
    "client": "its result as JSON: ",
}
EXPLAINED = {
    "approval": "a(pprove), e(dit) [arguments as JSON] or r(eject) [reason]",
    "elicitation": "the answer, or /reject [reason]",
    "client": "what the client found, as JSON, or /reject [reason]",
}
APPROVE, EDIT, REJECT = ("a", "approve", "y", "yes"), ("e", "edit"), ("r", "reject", "n", "no")


class NotUnderstood(Exception):
    """The line decides nothing; the message says what would."""


class EditWanted(Exception):
    """The person wants to edit the arguments, and has not said how."""


def prompt_for(call: OpenCall) -> str:
    """Return what a terminal shows where the answer to a pending call is typed."""
    assert call.question is not None
    return f"{call.name}: {PROMPTS[call.question.kind]}"


def decision(call: OpenCall, line: str) -> dict[str, Any]:
    """Return the resolution of a pending call; raises `NotUnderstood` or `EditWanted`."""
    assert call.question is not None
    word, _, rest = line.strip().partition(" ")
    kind = call.question.kind
    if word == "/reject" or (kind == "approval" and word.lower() in REJECT):
        return {"outcome": "reject", "reason": rest.strip() or None}
    if kind == "approval":
        if word.lower() in APPROVE and not rest:
            return {"outcome": "approve"}
        if word.lower() in EDIT:
            if not rest:
                raise EditWanted
            return edit(rest)
    elif kind == "client" and line.strip():
        return {"outcome": "answer", "answer": _parsed(line)}
    elif kind == "elicitation" and line.strip():
        return {"outcome": "answer", "answer": _worded(line.strip(), call.question.response_schema)}
    raise NotUnderstood(f"type {EXPLAINED[kind]}")


def edit(arguments: str) -> dict[str, Any]:
    """Return the approval of a call with other arguments; raises `NotUnderstood`."""
    args = _parsed(arguments)
    if not isinstance(args, dict):
        raise NotUnderstood("the arguments are a JSON object")
    return {"outcome": "edit", "args": args}


def _worded(line: str, schema: dict[str, Any] | None) -> Any:
    """Take an answer as it stands where a text is wanted or it is no JSON; the server checks it."""
    if schema is None or schema.get("type") == "string":
        return line
    try:
        return json.loads(line)
    except ValueError:
        return line


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise NotUnderstood(f"that is no JSON: {error}") from error
