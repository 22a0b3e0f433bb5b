"""How far something is that reads the whole log: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from projections.rebuild.progress import Progress as Standing

BAR_EVERY_S, LINE_EVERY_S = 0.5, 5.0


class ProgressBar:
    """Shows on standard error what `look` returns (None: nothing yet), from ``async with`` on."""

    def __init__(self, what: str, look: Callable[[], Awaitable[Standing | None]]) -> None:
        self._what, self._look = what, look
        self._last: Standing | None = None
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )

    async def __aenter__(self) -> Self:
        self._began = time.monotonic()
        self._task = asyncio.create_task(self._in_terminal() if self._console.is_terminal else self._in_lines())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if kind is None:
            await self._looked()
            took = time.monotonic() - self._began
            events = f", {self._last.total:,} events" if self._last else ""
            self._console.print(f"{self._what}: done in {took:.1f} s{events}", soft_wrap=True)

    async def _in_terminal(self) -> None:
        with self._bar as bar:
            task = bar.add_task(self._what, total=None, numbers="")
            while True:
                if standing := await self._looked():
                    numbers = f"{standing.done:,} of {standing.total:,} events, {standing.rate:,.0f}/s"
                    bar.update(task, total=standing.total or None, completed=standing.done, numbers=numbers)
                await asyncio.sleep(BAR_EVERY_S)

    async def _in_lines(self) -> None:
        while True:
            await asyncio.sleep(LINE_EVERY_S)
            if standing := await self._looked():
                left = "" if standing.eta_s is None else f", {standing.eta_s:.0f} s left"
                numbers = f"{standing.done:,} of {standing.total:,} events, {standing.rate:,.0f}/s{left}"
                self._console.print(f"{self._what}: {numbers}", soft_wrap=True)

    async def _looked(self) -> Standing | None:
        standing = await self._look()
        self._last = standing or self._last
        return standing
