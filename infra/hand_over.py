"""A bounded queue from one event loop to another that wakes its reader once per batch, not once per item."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class HandOver(Generic[T]):
    """One writer, one reader, each on a loop of its own; created by the reader.

    No locks: either side writes its news before it looks at the other's flag, so no wake-up is lost; one may be vain.
    """

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._items: deque[T] = deque()
        self._reader = asyncio.get_running_loop()
        self._readable = asyncio.Event()
        self._woken = False
        self._writer: asyncio.AbstractEventLoop | None = None
        self._writable = asyncio.Event()
        self._full = False

    def put(self, item: T) -> None:
        """Hand an item over, full or not. Raises `RuntimeError` when the reader's loop is closed."""
        self._items.append(item)
        if not self._woken:
            self._woken = True
            self._reader.call_soon_threadsafe(self._readable.set)

    async def room(self) -> None:
        """Wait, on the writer's side, until the reader has caught up."""
        if len(self._items) < self._limit:
            return
        self._writer = asyncio.get_running_loop()
        self._writable.clear()
        self._full = True
        if len(self._items) >= self._limit:
            await self._writable.wait()

    async def take(self) -> list[T]:
        """Wait, on the reader's side, for items, and return all that are there: at least one."""
        taken: list[T] = []
        while not taken:
            await self._readable.wait()
            self._readable.clear()
            self._woken = False
            while self._items:
                taken.append(self._items.popleft())
        if self._full and self._writer is not None:
            self._full = False
            self._writer.call_soon_threadsafe(self._writable.set)
        return taken
