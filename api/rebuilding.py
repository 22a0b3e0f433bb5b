"""What rebuilds and checks of read models work with, made of the stores that the settings name."""

from __future__ import annotations

import gc
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from infra.leases import Leases
from infra.long_loans import LongLoans
from infra.ordered_log import PostgresOrderedLog
from infra.postgres_event_store import PostgresEventStore
from infra.staged_log import staged_for_oneself, staged_in
from projections.rebuild.run import Workshop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.app import Stores
    from domain.event_store import EventStore
    from infra.database import Database
    from projections.ports import Connections
    from projections.rebuild.ordered_log import OrderedLog


def collect_garbage_rarely() -> None:
    """Save a tenth of the time in a process that does nothing but fold: what it makes has no cycles."""
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


def workshop_of(stores: Stores) -> Workshop:
    """Return what a rebuild works with."""
    return make_workshop(stores.database, stores.event_store)


def make_workshop(database: Database, store: EventStore) -> Workshop:
    """Return what a rebuild of the read models in a database works with."""
    connections = LongLoans(database)
    return Workshop(connections, Leases(database), store, partial(open_log, connections, store))


@asynccontextmanager
async def open_log(database: Connections, store: EventStore, schema: str | None) -> AsyncIterator[OrderedLog]:
    """Open the log by streams: a copy of it (in `schema`, None: for this block) unless it is in this database."""
    if isinstance(store, PostgresEventStore):
        yield PostgresOrderedLog(database)
    elif schema is not None:
        async with staged_in(database, store, schema) as log:
            yield log
    else:
        async with staged_for_oneself(database, store) as log:
            yield log
