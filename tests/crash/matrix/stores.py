"""The event stores that the matrix can be run on."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infra.eventstoredb import EventStoreDBEventStore
from infra.postgres_event_store import PostgresEventStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from domain.event_store import EventStore

POSTGRES, EVENTSTOREDB = "postgres", "eventstoredb"


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where a log is; `prefix` keeps logs apart that are on one server."""

    kind: str
    url: str
    prefix: str = ""


@asynccontextmanager
async def open_store(address: StoreAddress) -> AsyncIterator[EventStore]:
    """Open a log."""
    if address.kind == POSTGRES:
        async with PostgresEventStore(address.url) as store:
            yield store
    else:
        async with EventStoreDBEventStore(address.url, address.prefix) as store:
            yield store
