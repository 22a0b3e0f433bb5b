"""The stepper: keys move through a log, panes show its events, and of a long one only little is read."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from textual.widgets import Input, Static

from api.cli.replay_text import owed_text, patch_lines
from api.cli.stepper import Stepper
from api.cli.stepper_list import EventList
from api.cli.stepper_pane import Pane
from api.debugging.history import History, LoadedLog
from api.debugging.steps import Steps
from tests.support.long_log import CONVERSATION_ID, LongLog, log_of
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from textual.pilot import Pilot

    from api.debugging.history import LogReader

EVENTS = 40


class Screen:
    """A stepper that runs, and what its screen shows."""

    def __init__(self, pilot: Pilot[None], history: History) -> None:
        self._pilot, self.history = pilot, history

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def answer(self, key: str, *text: str) -> None:
        """Press a key that asks for a line, and type the line once it is asked for."""
        await self.press(key)
        await self.until(lambda: isinstance(self._pilot.app.focused, Input))
        await self.press(*text, "enter")
        await self.until(lambda: isinstance(self._pilot.app.focused, EventList))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await self._pilot.pause(0.01)

    async def stands_at(self, seq: int) -> None:
        """Wait until the event of that seq is shown."""
        await self.until(lambda: self.seq == seq and self.title("event").startswith(f"{seq} "))

    @property
    def seq(self) -> int:
        return self._pilot.app.query_one(EventList).seq

    def title(self, name: str) -> str:
        return str(self._pilot.app.query_one(f"#{name}", Pane).border_title or "")

    def text(self, name: str) -> str:
        return self._pilot.app.query_one(f"#{name}", Pane).text

    def pane(self, name: str) -> Pane:
        return self._pilot.app.query_one(f"#{name}", Pane)

    def lines(self, name: str) -> list[str]:
        """Return what a pane shows when scrolled from its beginning to its end."""
        pane = self.pane(name)
        lines = (pane.render_line(y - pane.scroll_offset.y) for y in range(pane.virtual_size.height))
        return [line.text[: pane.scrollable_content_region.width].rstrip() for line in lines]

    def keys_in_sight(self) -> list[str]:
        """Return the keys of the footer that are not cut off."""
        keys = [key for key in self._pilot.app.query("FooterKey") if key.region.right <= self._pilot.app.size.width]
        return [str(key.render()).split()[0] for key in keys]

    def head(self) -> str:
        return str(self._pilot.app.query_one("#head", Static).content)

    def line(self, y: int) -> str:
        return self._pilot.app.query_one(EventList).render_line(y).text


@asynccontextmanager
async def stepping(
    log: LogReader | None = None, *, size: tuple[int, int] = (120, 40), at: int | None = None
) -> AsyncIterator[Screen]:
    history = History(log or LoadedLog(log_of(EVENTS)), CONVERSATION_ID)
    async with Stepper(history, await history.last_seq(), "demo", at).run_test(size=size) as pilot:
        yield Screen(pilot, history)


async def test_keys_go_forward_back_to_an_event_and_to_both_ends() -> None:
    async with stepping() as screen:
        await screen.stands_at(1)
        for key, seq in (("right", 2), ("j", 3), ("left", 2), ("end", EVENTS), ("right", EVENTS), ("home", 1)):
            await screen.press(key)
            await screen.stands_at(seq)
        await screen.answer("g", "2", "7")
        await screen.stands_at(27)
        await screen.press("up")
        await screen.stands_at(26)
        assert screen.head().startswith(f"event 26 of {EVENTS}")


async def test_the_panes_show_the_event_its_patch_what_was_owed_and_the_context() -> None:
    async with stepping(at=5) as screen:
        await screen.stands_at(5)
        (step,) = await (await Steps.after(screen.history, 4)).next(1)
        assert '"name": "search"' in screen.text("event")
        assert screen.text("patch").splitlines() == list(patch_lines(step.patch))
        assert screen.text("owed") == owed_text(step.owes) == "run_tools call_1"
        assert "reconstructed" in screen.title("more")
        assert "user: question 1" in screen.text("more")
        await screen.press("c")
        await screen.until(lambda: "tool [executing]: search(" in screen.text("more"))
        await screen.press("c")
        await screen.until(lambda: '"call_1": {' in screen.text("more"))


async def test_a_search_goes_on_in_both_directions_and_around_the_end() -> None:
    async with stepping() as screen:
        await screen.stands_at(1)
        await screen.answer("slash", *"FOUND")
        await screen.stands_at(6)
        for key, seq in (("n", 12), ("n", 18), ("N", 12), ("N", 6), ("N", 36), ("n", 6)):
            await screen.press(key)
            await screen.stands_at(seq)
        await screen.answer("slash", *"nowhere")
        await screen.until(lambda: screen.head() == "no event has nowhere")
        assert screen.seq == 6
        await screen.press("c")
        await screen.until(lambda: screen.head().startswith(f"event 6 of {EVENTS}"))


async def test_a_search_says_if_no_other_event_has_it() -> None:
    async with stepping(at=5) as screen:
        await screen.stands_at(5)
        await screen.answer("slash", *"conversation_started")
        await screen.stands_at(1)
        await screen.press("n")
        await screen.until(lambda: screen.head() == "no other event has conversation_started")
        await screen.press("right")
        await screen.stands_at(2)


async def test_stepping_goes_on_from_every_pane_and_its_keys_stay_in_sight() -> None:
    async with stepping(size=(50, 15)) as screen:
        await screen.stands_at(1)
        for seq, key in enumerate(("right", "j", "l", "space"), start=2):
            await screen.press("tab", key)
            await screen.stands_at(seq)
            await screen.until(lambda: screen.keys_in_sight()[:4] == ["Tab", "q", "→", "←"])
        await screen.press("left", "k", "h")
        await screen.stands_at(2)


async def test_no_end_of_a_line_is_lost_and_a_pane_that_is_cut_can_be_scrolled() -> None:
    async with stepping(size=(100, 24), at=5) as screen:
        await screen.stands_at(5)
        pane = screen.pane("patch")
        await screen.until(lambda: pane.show_vertical_scrollbar)
        await screen.until(lambda: "".join("".join(screen.lines("patch")).split()) == "".join(pane.text.split()))
        await screen.press("tab", "tab", "end")
        await screen.until(lambda: 0 < pane.scroll_offset.y == pane.max_scroll_y)


async def test_events_that_come_are_there_to_be_stepped_to() -> None:
    log = LongLog(EVENTS)
    async with stepping(log) as screen:
        await screen.press("end")
        await screen.stands_at(EVENTS)
        log.events += 3
        await screen.until(lambda: f"of {EVENTS + 3}" in screen.head())
        await screen.press("end")
        await screen.stands_at(EVENTS + 3)


async def test_of_a_long_conversation_little_is_read() -> None:
    log = LongLog(100_000)
    async with stepping(log, at=50_000) as screen:
        await screen.stands_at(50_000)
        await screen.press("right", "right", "end")
        await screen.stands_at(100_000)
        assert log.read_events < 10_000


@pytest.mark.parametrize("size", [(20, 5), (40, 12), (300, 90)], ids=str)
async def test_a_screen_of_any_size_will_do(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with stepping(size=size) as screen:
        await screen.press("right")
        await screen.stands_at(2)
        await screen.until(lambda: bool(screen.line(0).strip()))
        await screen.press("q")
