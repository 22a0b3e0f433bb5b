"""A rebuild of all, in a process of its own and in small slices: ``python -m tests.support.rebuild_process DSN``.

With ``--stands-still`` it says so after a slice, and does nothing at all until a line is typed.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any
from unittest.mock import patch

from api.rebuilding import make_workshop
from infra.database import Database
from infra.postgres_event_store import PostgresEventStore
from projections.catalog import PROJECTIONS
from projections.rebuild import run
from projections.rebuild.run import rebuild
from projections.rebuild.slices import fold_slice


async def main(dsn: str, *, stands_still: bool) -> None:
    run.SLICE_EVENTS, run.LEASE_S, run.RENEW_EVERY_S = 40, 0.5, 0.1
    if stands_still:
        patch.object(run, "fold_slice", _stand_still_afterwards).start()
    async with PostgresEventStore(dsn) as store, Database(dsn) as database:
        await rebuild(make_workshop(database, store), PROJECTIONS)


async def _stand_still_afterwards(*given: Any) -> None:
    await fold_slice(*given)
    print("stands still", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], stands_still="--stands-still" in sys.argv))
