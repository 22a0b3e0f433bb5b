"""`retry`: fold again what read models have parked."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from api.cli.failures import NO
from api.cli.job import Job
from api.cli.projection_names import Names, named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infra.settings import Settings

SHOWN = 20


def retry(names: Names) -> Job:
    """Fold the parked conversations of read models again, and name those that are refused again (exit code 1)."""
    return Job(partial(_retry, names=names))


async def _retry(settings: Settings, *, names: Sequence[str]) -> int:
    from api.app import opened_stores
    from infra.long_loans import LongLoans
    from projections.parked import list_parked
    from projections.retrying import retry

    still = 0
    async with opened_stores(settings) as stores:
        for projection in named(stores.projections, names):
            done = await retry(LongLoans(stores.database), stores.event_store, projection)
            print(f"{projection.name}: {done.retried} conversations flow again, {done.parked} are parked")
            async with stores.database.connection() as connection:
                page = await list_parked(connection, projection.name, cursor=None, limit=SHOWN)
            for item in page.items:
                print(f"  {item['conversation_id']} at event {item['seq']} ({item['type']}): {item['error']}")
            still += done.parked
    return NO if still else 0
