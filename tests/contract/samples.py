"""What the tests of event stores append, and how they wait for it."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import uuid4

from domain.event_store import NewEvent, StoreError, StreamDeleted, StreamMoved
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from domain.event_store import Appended, Batch, EventStore, StoredEvent


T = TypeVar("T")


class OpenStore(Protocol):
    """Opens the store under test, which others may use as well; `patience` is how long it bears an outage."""

    def __call__(self, *, patience: float = PATIENCE_S) -> AbstractAsyncContextManager[EventStore]: ...


def event(text: str = "hello") -> NewEvent:
    return NewEvent(uuid4(), "user_msg", json.dumps({"text": text}), '{"actor": "ada"}')


def events(count: int) -> list[NewEvent]:
    return [event(str(n)) for n in range(count)]


def some_stream() -> str:
    return f"conversation-{uuid4()}"


def seqs(stored: list[StoredEvent]) -> list[int]:
    return [one.seq for one in stored]


async def outcome(append: Awaitable[Appended]) -> Appended | Exception:
    try:
        return await append
    except (StreamMoved, StreamDeleted, ValueError) as refusal:
        return refusal


async def insisted(attempt: Callable[[], Awaitable[T]]) -> T:
    """Repeat what an impatient store gives up on a slow machine."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(StoreError):
                return await attempt()


async def take(batches: AsyncGenerator[Batch, None], count: int) -> list[StoredEvent]:
    """Read `count` events, or more if the last batch has more."""
    taken: list[StoredEvent] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(taken) < count:
            taken += (await anext(batches)).events
    return taken


async def caught_up(batches: AsyncGenerator[Batch, None]) -> Batch:
    async with asyncio.timeout(PATIENCE_S):
        while not (batch := await anext(batches)).caught_up:
            pass
        return batch
