"""What rebuilds and checks of read models work with, made of the stores that the settings name."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from infra.leases import Leases
from infra.ordered_log import PostgresOrderedLog
from projections.rebuild.run import Workshop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.app import Stores
    from projections.rebuild.ordered_log import OrderedLog


def workshop_of(stores: Stores) -> Workshop:
    """Return what a rebuild works with."""

    @asynccontextmanager
    async def open_log(schema: str | None) -> AsyncIterator[OrderedLog]:
        yield PostgresOrderedLog(stores.database)

    return Workshop(stores.database, Leases(stores.database), stores.event_store, open_log)
