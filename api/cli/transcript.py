"""A conversation on paper: its events, and its model's words as they come."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

from api.event_text import call_text, parts_text
from api.printable import on_one_line, printable, shortened
from domain import events
from domain.parts import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from domain.event_envelope import ConversationEvent

LONGEST_RESULT = 400
CLEAR_LINE = "\r\x1b[K"
AGENT, PERSON, THOUGHT = "agent: ", "you: ", "thinking: "


class Transcript:
    """Writes to standard output; what others said cannot steer the terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, markup=False, emoji=False)
        self._names: dict[str, str] = {}
        self._at_line_start = True
        self._step: tuple[int, int] | None = None
        self._said: dict[str, str] = {}
        self._kind = ""
        self._unheard: tuple[int, int] | None = None
        self._prompt: Callable[[], str] | None = None
        self.mine: set[str] = set()
        """The ids of messages that are on the screen already, where they were typed."""

    def note(self, text: str, style: str = "dim") -> None:
        """Write a remark of the program's."""
        with self._above_prompt():
            self._line(text, style)

    def event(self, event: ConversationEvent) -> None:
        """Write what an event says, if it says something to people."""
        with self._above_prompt():
            self._event(event)

    @contextmanager
    def prompting(self, shown: Callable[[], str]) -> Iterator[None]:
        """Write above a line that is being typed; `shown` returns its prompt and what is typed so far."""
        self._finish_line()
        self._prompt = shown
        try:
            yield
        finally:
            self._prompt = None
            self._at_line_start = True

    def _event(self, event: ConversationEvent) -> None:
        match event:
            case events.UserMsg():
                if event.message_id not in self.mine:
                    self._line(PERSON + _content(event), "green")
            case events.AssistantMsg():
                self._reply(event)
            case events.ToolCall():
                self._names[event.tool_call_id] = event.name
                self._line(f"  tool {call_text(event.name, event.args)}", "yellow")
            case events.Suspension():
                until = f" (until {event.expires_at:%Y-%m-%d %H:%M} UTC)" if event.expires_at else ""
                self._line(f"  ? {event.prompt}{until}", "bold magenta")
            case events.Resolution():
                self._line(f"  {self._name(event)}: {_decided(event)}", "magenta")
            case events.ToolResult():
                style = "yellow" if event.status == "ok" else "red"
                text = shortened(on_one_line(_content(event)), LONGEST_RESULT)
                self._line(f"  {self._name(event)} {event.status}: {text}", style)
            case events.TurnResumed():
                self._line("another worker goes on", "dim")
            case events.TurnEnded():
                self._end_of_turn(event)
            case events.ConversationFinished():
                self._line(f"the conversation was ended{f': {event.reason}' if event.reason else ''}", "red")

    def live(self, name: str, said: Mapping[str, Any]) -> None:
        """Write a delta, or what a partial has beyond what was written."""
        step = said["turn"], said["step"]
        if self._prompt is not None:
            self._unheard = step  # words would run into what is typed: the reply comes whole
        if step == self._unheard:
            return
        if step != self._step:
            self._step, self._said, self._kind = step, {}, ""
        kind, text, before = said["kind"], said["text"], self._said.get(said["kind"], "")
        if name == "partial":
            if before and not text.startswith(before):
                self._line("(it begins again)", "dim")
                self._said, before = {}, ""
            text = text[len(before) :]
        self._speak(kind, text)

    def _reply(self, event: events.AssistantMsg) -> None:
        whole = text_of(event.content)
        said = self._said.get("text", "") if self._step == (event.turn, event.step) else ""
        if not whole.startswith(said):
            self._line("(it was said otherwise)", "dim")
            said = ""
        if not said:
            self._kind = ""
        self._speak("text", whole[len(said) :])
        self._finish_line()
        self._step = None

    def _end_of_turn(self, event: events.TurnEnded) -> None:
        said = self._said.get("text", "") if self._step else ""
        if event.partial_text and event.partial_text.startswith(said):
            self._speak("text", event.partial_text[len(said) :])
        self._step = None
        if event.outcome == "failed":
            why = f"{event.reason}: {event.detail}" if event.detail else event.reason or "for no known reason"
            self._line(f"the turn failed: {why}", "red")
        elif event.outcome == "cancelled":
            self._line("(cancelled)", "red")

    def _speak(self, kind: str, text: str) -> None:
        if not text:
            return
        if kind != self._kind:
            self._finish_line()
            self._write(AGENT if kind == "text" else THOUGHT, "bold cyan" if kind == "text" else "dim")
        self._kind = kind
        self._said[kind] = self._said.get(kind, "") + text
        self._write(printable(text), None if kind == "text" else "dim")

    def _name(self, event: events.Resolution | events.ToolResult) -> str:
        return self._names.get(event.tool_call_id, event.tool_call_id)

    @contextmanager
    def _above_prompt(self) -> Iterator[None]:
        if self._prompt is None:
            yield
            return
        self._console.file.write(CLEAR_LINE)
        self._at_line_start = True
        yield
        self._finish_line()
        self._console.file.write(self._prompt())
        self._console.file.flush()

    def _line(self, text: str, style: str) -> None:
        self._finish_line()
        self._kind = ""
        self._write(printable(text) + "\n", style, soft_wrap=not self._console.is_terminal)

    def _finish_line(self) -> None:
        if not self._at_line_start:
            self._write("\n", None)

    def _write(self, text: str, style: str | None, *, soft_wrap: bool = True) -> None:
        self._console.print(text, style=style, end="", soft_wrap=soft_wrap)
        self._console.file.flush()
        self._at_line_start = text.endswith("\n")


def _content(event: events.UserMsg | events.ToolResult) -> str:
    return parts_text([part.model_dump() for part in event.content])


def _decided(event: events.Resolution) -> str:
    by = f" by {event.by.id}" if event.by.kind == "user" else ""
    ran = f", to run with {call_text('', event.args)}" if event.args is not None else ""
    return f"{event.outcome}{by}{ran}{f': {event.reason}' if event.reason else ''}"
