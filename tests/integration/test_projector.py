"""The projector on a real database: what it folds, and that rows and checkpoints move together."""

from __future__ import annotations

from projections.catalog import PROJECTIONS
from tests.support.given import GATED_CALL, asked, claimed, closed, got, history, resolved, said, started, stored
from tests.support.projecting import fold_whole
from tests.support.read_side import open_read_side

TURN = [stored(e) for e in history(started(), asked(), claimed(), said(), closed())]


async def test_r4_live_rows_are_those_of_a_fold_from_scratch(database_url: str) -> None:
    log = [stored(e) for e in history(*GATED_CALL, resolved(), got(), said("done"), closed())]
    async with open_read_side(database_url) as read_side, read_side.projecting():
        await read_side.reached(await read_side.append(log))
        log = await read_side.store.read_all(0, limit=1000, prefixes=["conversation-"])
        for projection in PROJECTIONS:
            assert await read_side.rows(projection) == fold_whole(projection, log), projection.name
