"""The offline `demo` model: deterministic, needs no key, and shows a newcomer every kind of tool."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import TYPE_CHECKING, Any

from commands.agent.model import Delta, ModelReply, ToolRequest
from domain.hook_context import is_context
from domain.parts import text_part
from domain.summarising import INSTRUCTIONS
from domain.titles import person_to_be_named
from domain.usage import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from commands.agent.model import ModelRequest

MODEL = "demo"
WORD_DELAY_S = 0.015
TITLE_WORDS = 6
LONGEST_ECHO = 300
"""Words; at 15 ms each a longer text would make people wait."""
DIGEST_WORDS = 8

_EMAIL = r"email\s+(?P<to>[^\s:]+@[^\s:]+)\s*:\s*"
_WISH = r"what\s+time\s+is\s+it|ask\s+me\s+something|where\s+am\s+i\b"
WISHES = re.compile(
    rf"{_EMAIL}(?P<body>.+?)(?=[\s,;.!?]*(?:\band\s+)?(?:{_WISH}|email\s+[^\s:]+@)|\n|;|$)|(?P<wish>{_WISH})",
    re.IGNORECASE,
)
TOOLS = {"what": "current_time", "ask": "ask_user", "where": "get_location"}
QUESTION = "What is your favourite colour?"
ANSWERS = {
    "current_time": "It is {}.",
    "send_email": "About the email: {}.",
    "ask_user": "You answered: {}.",
    "get_location": "You are here: {}.",
}


class DemoModel:
    """The port `Model`: echoes, and calls those of the demo tools that the request offers and the text asks for."""

    def __init__(self, *, word_delay_s: float = WORD_DELAY_S) -> None:
        self._word_delay_s = word_delay_s

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelReply, None]:
        """Stream the reply word by word, then yield it whole; it never fails."""
        started = time.monotonic()
        offered = {tool.get("function", {}).get("name") for tool in request.tools}
        text, calls = answer(request.messages, offered)
        words = re.findall(r"\S+\s*", text)
        for word in words:
            await asyncio.sleep(self._word_delay_s)
            yield Delta("text", word)
        yield ModelReply(
            content=[text_part(text)],
            tool_requests=tuple(
                ToolRequest(f"demo_{number}", name, json.dumps(args)) for number, (name, args) in enumerate(calls)
            ),
            model=MODEL,
            finish_reason="tool_calls" if calls else "stop",
            usage=Usage(
                model=MODEL,
                input_tokens=sum(len(_text(message).split()) for message in request.messages),
                output_tokens=len(words),
                cost_usd=0.0,
            ),
            latency_ms=round((time.monotonic() - started) * 1000),
        )


def digest(asked: str) -> str:
    """Return the demo's summary of what it is asked to summarise: how what people said began."""
    said = re.findall(r"^(?:User: |- )(.+)$", asked, re.MULTILINE)
    return "\n".join(["## Critical context", *(f"- {' '.join(line.split()[:DIGEST_WORDS])}" for line in said)])


def answer(messages: Sequence[Mapping[str, Any]], offered: set[str | None]) -> tuple[str, list[tuple[str, Any]]]:
    """Return what to say to a conversation, and the tool calls (name, arguments) to make."""
    if messages and messages[0].get("content") == INSTRUCTIONS:
        return digest(_text(messages[-1])), []
    if (named := person_to_be_named(messages)) is not None:
        return " ".join(named.split()[:TITLE_WORDS]), []
    last = max((at for at, message in enumerate(messages) if message.get("role") == "assistant"), default=-1)
    names = {call["id"]: call["function"]["name"] for message in messages for call in message.get("tool_calls") or ()}
    said: list[str] = []
    calls: list[tuple[str, Any]] = []
    for message in messages[last + 1 :]:
        if is_context(message):
            continue
        text = _text(message).strip()
        if message.get("role") == "tool":
            name = names.get(str(message.get("tool_call_id")), "The tool")
            said.append(ANSWERS.get(name, name + " said: {}.").format(text.rstrip(".")))
        elif text.startswith("[") and text.endswith("]"):  # a note that a turn was cancelled, with what was asked in it
            said, calls = [], []
        elif message.get("role") == "user":
            wishes = [wish for wish in _wishes(text) if wish[0] in offered]
            calls += wishes
            if not wishes:
                words = text.split(maxsplit=LONGEST_ECHO)
                said.append("You said: " + " ".join(words[:LONGEST_ECHO]) + (" …" if len(words) > LONGEST_ECHO else ""))
    if calls:
        said.append("One moment: " + ", ".join(name for name, _ in calls) + ".")
    return "\n\n".join(said) or "Hello!", calls


def _wishes(text: str) -> list[tuple[str, Any]]:
    """Return the calls that a text asks for, in its order."""
    found: list[tuple[str, Any]] = []
    for match in WISHES.finditer(text):
        if to := match["to"]:
            found.append(("send_email", {"to": to, "body": match["body"].strip()}))
        else:
            name = TOOLS[match["wish"].split()[0].lower()]
            found.append((name, {"question": QUESTION} if name == "ask_user" else {}))
    return found


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content if isinstance(part, dict))
