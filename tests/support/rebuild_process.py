"""A rebuild of all, in a process of its own and in small slices: ``python -m tests.support.rebuild_process DSN``."""

from __future__ import annotations

import asyncio
import sys

from api.rebuilding import make_workshop
from infra.database import Database
from infra.postgres_event_store import PostgresEventStore
from projections.catalog import PROJECTIONS
from projections.rebuild import run
from projections.rebuild.run import rebuild


async def main(dsn: str) -> None:
    run.SLICE_EVENTS, run.LEASE_S, run.RENEW_EVERY_S = 40, 0.5, 0.1
    async with PostgresEventStore(dsn) as store, Database(dsn) as database:
        await rebuild(make_workshop(database, store), PROJECTIONS)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
