"""`pause`, `resume`: hold read models where they are, and let them go on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from api.cli.job import Job
from api.cli.projection_names import Names, named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infra.settings import Settings


def pause(names: Names) -> Job:
    """Hold read models where they are, also over restarts, until they are resumed."""
    return Job(partial(_set, names=names, paused=True))


def resume(names: Names) -> Job:
    """Let paused read models go on."""
    return Job(partial(_set, names=names, paused=False))


async def _set(settings: Settings, *, names: Sequence[str], paused: bool) -> int:
    from api.app import opened_stores
    from projections.pausing import pause, resume

    async with opened_stores(settings) as stores, stores.database.connection() as connection:
        for projection in named(stores.projections, names):
            await (pause if paused else resume)(connection, projection.name)
            print(f"{projection.name} {'is paused' if paused else 'goes on'}")
    return 0
