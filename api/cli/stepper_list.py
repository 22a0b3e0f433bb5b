"""The stepper's list of events: of a log of any length only the lines on the screen, and some around them, are read."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import work
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from api.event_text import COLOURS, event_text
from api.printable import shortened
from domain.event_store import StoreError

if TYPE_CHECKING:
    from textual import events

    from api.debugging.history import History
    from projections.event import Event

PAGE = 100
KEPT = 20
LONGEST = 300


class EventList(ScrollView, can_focus=True, inherit_bindings=False):
    """A line an event, and a cursor on one of them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "move(1)", show=False),
        Binding("up", "move(-1)", show=False),
        Binding("pagedown", "move(20)", show=False),
        Binding("pageup", "move(-20)", show=False),
        Binding("home", "jump(1)", show=False),
        Binding("end,G", "jump(-1)", show=False),
    ]
    DEFAULT_CSS: ClassVar[str] = "EventList { overflow-x: hidden; }"

    seq: reactive[int] = reactive(0, init=False)
    """Where the cursor is."""

    class Moved(Message):
        """The cursor stands on another event."""

        def __init__(self, seq: int) -> None:
            super().__init__()
            self.seq = seq

    def __init__(self, history: History, last_seq: int) -> None:
        super().__init__()
        self._history, self.last_seq = history, last_seq
        self._pages: OrderedDict[int, list[tuple[str, str]]] = OrderedDict()
        self._loading: set[int] = set()

    def on_mount(self) -> None:
        """Say how long the list is."""
        self.grow(self.last_seq)

    def grow(self, last_seq: int) -> None:
        """Take in that the log has come so far."""
        if last_seq > self.last_seq:
            self._pages.pop(self.last_seq // PAGE, None)
        self.last_seq = last_seq
        self.virtual_size = Size(self.size.width, last_seq)
        self.refresh()

    def action_move(self, by: int) -> None:
        """Go forward or back."""
        self.seq += by

    def action_jump(self, seq: int) -> None:
        """Go to an event; -1: the newest."""
        self.seq = self.last_seq if seq < 0 else seq

    def on_click(self, event: events.Click) -> None:
        """Go to the event of the line."""
        self.seq = event.y + self.scroll_offset.y + 1

    def validate_seq(self, seq: int) -> int:
        """Stay within the log."""
        return max(1, min(seq, self.last_seq))

    def watch_seq(self, seq: int) -> None:
        """Bring the line into sight, and tell."""
        self.scroll_to_region(Region(0, seq - 1, 1, 1), animate=False, force=True)
        self.refresh()
        self.post_message(self.Moved(seq))

    def render_line(self, y: int) -> Strip:
        """Draw a line of the part in sight."""
        seq = y + self.scroll_offset.y + 1
        if seq > self.last_seq:
            return Strip.blank(self.size.width, self.rich_style)
        event_type, text = self._line(seq)
        style = self.rich_style + Style.parse(COLOURS.get(event_type, "dim"))
        if seq == self.seq:
            style += Style(reverse=True, dim=False)
        width, kind = max(4, len(str(self.last_seq))), max(10, min(20, self.size.width // 3))
        strip = Strip([Segment(f"{seq:>{width}} {event_type:<{kind}.{kind}} {text}", style)])
        return strip.adjust_cell_length(self.size.width, style)

    def _line(self, seq: int) -> tuple[str, str]:
        page, index = divmod(seq - 1, PAGE)
        if page not in self._pages:
            if page not in self._loading:
                self._loading.add(page)
                self._load(page)
            return "", "…"
        lines = self._pages[page]
        return lines[index] if index < len(lines) else ("", "…")

    @work
    async def _load(self, page: int) -> None:
        try:
            after, lines = page * PAGE, list[tuple[str, str]]()
            while len(lines) < PAGE and (found := await self._history.page(after + len(lines), PAGE - len(lines))):
                lines += [(event.type, _text(event)) for event in found]
        except StoreError as error:
            self.notify(str(error), severity="error")
        else:
            self._pages[page] = lines
            if len(self._pages) > KEPT:
                self._pages.popitem(last=False)
            self.refresh()
        finally:
            self._loading.discard(page)


def _text(event: Event) -> str:
    return shortened(event_text(event.type, event.data), LONGEST)
