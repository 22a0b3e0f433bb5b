"""The stepper: a conversation on the screen, event by event, forward and back."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import App
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.events import Event, Key
from textual.widgets import Footer, Input, Static

from api.cli.replay_text import context_head, context_lines, owed_text, patch_lines, shown_lines, state_text
from api.cli.stepper_list import EventList
from api.cli.stepper_looks import Looks
from api.cli.stepper_pane import Pane, Panes
from api.debugging.search import find
from api.printable import printable
from domain.errors import DomainError
from domain.event_store import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.app import ComposeResult

    from api.cli.stepper_looks import Look
    from api.debugging.history import History

NEWS_S = 1.0


class Stepper(App[None]):
    """Steps through a history; nothing is run, and nothing changes."""

    TITLE = "rejoinder replay"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 - as the library declares it
    CSS = """
    #head { height: 1; text-style: bold; text-wrap: nowrap; text-overflow: ellipsis; }
    #body { height: 1fr; layout: horizontal; }
    EventList { width: 2fr; height: 1fr; }
    #panes { width: 3fr; height: 1fr; }
    Pane { height: 2fr; min-height: 4; border: round gray; }
    Pane:focus { border: heavy white; }
    #owed { height: 4; }
    #more { height: 3fr; }
    .-narrow #body { layout: vertical; }
    .-narrow EventList { width: 1fr; height: 2fr; min-height: 3; }
    .-narrow #panes { width: 1fr; height: 3fr; }
    .-narrow #panes Pane { height: auto; max-height: 8; min-height: 3; }
    #ask { display: none; height: 1; border: none; padding: 0; }
    #ask.asking { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),  # first: what does not fit a narrow footer is cut off at its end
        Binding("right,l,j,space", "move(1)", "next", key_display="→"),
        Binding("left,h,k", "move(-1)", "back", key_display="←"),
        Binding("tab", "focus_next", "pane", key_display="Tab", priority=True),
        Binding("g", "ask('go to event ')", "go to"),
        Binding("slash", "ask('/')", "search", key_display="/"),
        Binding("n", "again(False)", "again", key_display="n N"),
        Binding("N", "again(True)", show=False),
        Binding("c", "turn_over", "context, people, state"),
        Binding("escape", "give_up", show=False),
    ]

    def __init__(self, history: History, last_seq: int, default_model: str, at: int | None = None) -> None:
        """Begin at an event; None: the first."""
        # without colours the terminal's own are left alone, rather than turned into greys
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self._history, self._at = history, at or 1
        self._looks = Looks(history, default_model)
        self._look: Look | None = None
        self._events = EventList(history, last_seq)
        self._sides = ["context", "people saw", "state"]
        self._asked = self._wanted = ""
        self._noted = False

    def compose(self) -> ComposeResult:
        """Put the list on the left and the panes on the right, or below it."""
        yield Static(id="head", markup=False)
        with Container(id="body"):
            yield self._events
            with Panes(id="panes"):
                for name in ("event", "patch", "owed", "more"):
                    yield Pane(id=name)
        yield Input(id="ask")
        yield Footer()

    def on_mount(self) -> None:
        """Begin."""
        self._events.focus()
        self._events.seq = self._at
        self.set_interval(NEWS_S, self._take_news)

    async def on_event(self, event: Event) -> None:
        """Let a note go with the next key."""
        if isinstance(event, Key) and self._noted:
            self._head(self._events.seq)
        await super().on_event(event)

    def action_move(self, by: int) -> None:
        """Go forward or back, from whatever pane."""
        self._events.seq += by

    def action_ask(self, what: str) -> None:
        """Ask for a line."""
        self._asked = what
        ask = self.query_one("#ask", Input)
        ask.value, ask.placeholder = "", what.strip() if what != "/" else "search"
        ask.add_class("asking")
        ask.focus()

    def action_give_up(self) -> None:
        """Ask no more, and search no more."""
        self.query_one("#ask").remove_class("asking")
        self.workers.cancel_group(self, "search")
        self._events.focus()

    def action_again(self, backwards: bool) -> None:
        """Go to the next event that has what was searched for."""
        if self._wanted:
            self._search(backwards)

    def action_turn_over(self) -> None:
        """Show the next of what does not fit beside each other."""
        self._sides.append(self._sides.pop(0))
        self._show_more()

    @on(Input.Submitted, "#ask")
    def take_answer(self, event: Input.Submitted) -> None:
        """Go to where the line says."""
        self.action_give_up()
        if self._asked == "/":
            self._wanted = event.value
            self.action_again(False)
        elif event.value.strip().isdecimal():
            self._events.seq = int(event.value)

    @on(EventList.Moved)
    def look(self, event: EventList.Moved) -> None:
        """Show the event."""
        self._head(event.seq)
        self._show(event.seq)

    @work(exclusive=True, group="show")
    async def _show(self, seq: int) -> None:
        try:
            self._look = look = await self._looks.at(seq)
        except (StoreError, DomainError) as error:
            self.notify(str(error), severity="error")
            return
        step = look.step
        at = f"{step.occurred_at:%Y-%m-%d %H:%M:%S}"
        data = json.dumps(step.data, ensure_ascii=False, indent=2)
        self._pane("event", f"{seq} {step.type} · {at}", data)
        self._pane("patch", "patch", _joined(patch_lines(step.patch)))
        self._pane("owed", "then owed", owed_text(step.owes, amid=step.amid))
        self._show_more()

    def _show_more(self) -> None:
        if self._look is None:
            return
        then = self._look.moment
        match self._sides[0]:
            case "context":
                seen = then.working_set
                self._pane("more", f"context: {context_head(seen)}", _joined(context_lines(seen)))
            case "people saw":
                self._pane("more", "people saw", _joined(shown_lines(then.messages)))
            case _:
                self._pane("more", "state", state_text(then.state))

    @work(exclusive=True, group="search")
    async def _search(self, backwards: bool) -> None:
        self._head(self._events.seq, f"searching for {self._wanted} …")
        try:
            found = await find(self._history, self._wanted, seq=self._events.seq, backwards=backwards)
        except StoreError as error:
            self.notify(str(error), severity="error")
            return
        if found is None:
            self._head(self._events.seq, f"no event has {self._wanted}")
        elif found == self._events.seq:
            self._head(found, f"no other event has {self._wanted}")
        else:
            self._events.seq = found

    async def _take_news(self) -> None:
        try:
            last_seq = await self._history.last_seq()
        except (StoreError, DomainError) as error:
            self._head(self._events.seq, str(error))
            return
        if last_seq != self._events.last_seq:
            self._events.grow(last_seq)
            self._head(self._events.seq)

    def _head(self, seq: int, note: str = "") -> None:
        self._noted = bool(note)
        text = f"event {seq:,} of {self._events.last_seq:,} · conversation {self._history.conversation_id}"
        self.query_one("#head", Static).update(Content(printable(note) if note else text))

    def _pane(self, name: str, title: str, text: str) -> None:
        self.query_one(f"#{name}", Pane).show(title, text)


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines)
