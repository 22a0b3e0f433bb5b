"""A part of the stepper's screen: a text with a title, of which only the lines in sight are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.cells import chop_cells
from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from api.printable import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual import events

LONGEST = 100_000
"""Characters; the other commands show all of them."""


class Panes(VerticalScroll, can_focus=False, inherit_bindings=False):
    """Panes one below the other; the one that has the focus is brought into sight."""


class Pane(ScrollView, can_focus=True, inherit_bindings=False):
    """Shows a text; its long lines go on in the next one. Keys scroll it up and down; the others are for stepping."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll_up", show=False),
        Binding("down", "scroll_down", show=False),
        Binding("pageup", "page_up", show=False),
        Binding("pagedown", "page_down", show=False),
        Binding("home", "scroll_home", show=False),
        Binding("end", "scroll_end", show=False),
    ]
    DEFAULT_CSS: ClassVar[str] = "Pane { overflow-x: hidden; scrollbar-gutter: stable; }"

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.text = ""
        self._lines: list[str] = []

    def show(self, title: str, text: str) -> None:
        """Show something else, from its beginning."""
        self.border_title = Content(title)
        self.text = shortened(printable(text), LONGEST).expandtabs(4) or "–"
        self._lay_out()
        self.scroll_home(animate=False)

    def on_resize(self, _event: events.Resize) -> None:
        """Break the lines anew."""
        self._lay_out()

    def render_line(self, y: int) -> Strip:
        """Draw a line of the part in sight."""
        at = y + self.scroll_offset.y
        line = self._lines[at] if at < len(self._lines) else ""
        return Strip([Segment(line, self.rich_style)]).adjust_cell_length(self.size.width, self.rich_style)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return how many lines there are, for a pane that is as high as its text."""
        return len(self._lines)

    def _lay_out(self) -> None:
        width = max(1, self.scrollable_content_region.width or self.size.width)
        self._lines = [part for line in self.text.splitlines() for part in _broken(line, width)]
        self.virtual_size = Size(width, len(self._lines))
        height = self.styles.height
        self.refresh(layout=height is not None and height.is_auto)


def _broken(line: str, width: int) -> Iterator[str]:
    if not line.isascii():
        yield from chop_cells(line, width)
    elif line:
        yield from (line[at : at + width] for at in range(0, len(line), width))
    else:
        yield ""
