"""The event stores that the matrix can be run on."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infra.postgres_event_store import PostgresEventStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from domain.event_store import EventStore


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where a log is: `kind` is ``postgres`` or ``eventstoredb``, `prefix` keeps the logs of runs apart."""

    kind: str
    url: str
    prefix: str = ""


@asynccontextmanager
async def open_store(address: StoreAddress) -> AsyncIterator[EventStore]:
    """Open a log."""
    async with PostgresEventStore(address.url) as store:
        yield store
