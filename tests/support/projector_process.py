"""A projector in a process of its own: ``python -m tests.support.projector_process DSN LEASE_S LOOK_EVERY_S``.

It prints ``ready``, and then what it logs.
"""

from __future__ import annotations

import asyncio
import logging
import sys

from infra.database import Database
from infra.leases import Leases
from infra.postgres_event_store import PostgresEventStore
from projections.catalog import PROJECTIONS
from projections.projector import Projector


async def main(dsn: str, lease_s: float, look_every_s: float) -> None:
    async with PostgresEventStore(dsn) as store, Database(dsn) as database:
        print("ready", flush=True)
        await Projector(
            store, database, Leases(database), PROJECTIONS, lease_s=lease_s, look_every_s=look_every_s
        ).run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3])))
