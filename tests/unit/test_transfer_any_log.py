"""Whatever happens to conversations, they come through a file, and a fork, as what they were."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from api.transfer.checking import check
from api.transfer.examining import examine
from api.transfer.importing import append_missing
from commands.fork import Fork, fork
from domain.errors import CutsTurn
from domain.wire import conversation_of
from infra.memory_event_store import MemoryEventStore
from projections.catalog import PROJECTIONS
from tests.support.forking import folded, put, seen, whole_log
from tests.support.random_log import random_log
from tests.support.transferring import exported
from tests.unit.test_commands import by, over

if TYPE_CHECKING:
    import random
    from uuid import UUID

    from domain.event_store import StoredEvent


class Nobody:
    """No workers, so nobody is kept away."""

    async def hold(self, conversation_id: UUID) -> bool:
        return True

    async def release(self, conversation_id: UUID) -> None:
        pass


def unseen(done: int) -> None:
    """Take no notice of progress."""


async def through_a_file(log: list[StoredEvent], path: Path) -> list[StoredEvent]:
    """Import what was exported of a log; return the log that it is then."""
    store = MemoryEventStore()
    arrivals = await examine(exported(path, log), store, unseen)
    assert (arrivals[0].open_work == []) == (not folded(log).busy or folded(log).ended)
    for _ in range(2):  # the second time does nothing
        await append_missing(path, store, Nobody(), arrivals, unseen)
    return await store.read_all(0, limit=10_000)


async def forked_anywhere(log: list[StoredEvent], seq: int) -> None:
    """Fork a log at a seq, if it can be."""
    store = MemoryEventStore()
    await put(store, log)
    conversation_id = conversation_of(log[0].stream)
    assert conversation_id is not None
    then = [event for event in log if event.seq <= seq and event.type != "conversation_ended"]
    try:
        receipt = await fork(over(store)[0], conversation_id, Fork(at_seq=seq), by())
    except CutsTurn:
        assert folded(then).turn is not None
    else:
        assert seen(await whole_log(store, receipt.conversation_id)) == seen(then)


@settings(max_examples=25)
@for_all(chance=st.randoms(use_true_random=False), steps=st.integers(0, 30), data=st.data())
def test_d4_any_conversation_comes_through_a_file_and_a_fork_as_what_it_was(
    chance: random.Random, steps: int, data: st.DataObject
) -> None:
    log = random_log(chance, steps=steps)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.jsonl"
        there = asyncio.run(through_a_file(log, path))
        assert [replace(event, position=0) for event in there] == [replace(event, position=0) for event in log]
        assert not any(findings.count for findings in check(path, PROJECTIONS, unseen))
    asyncio.run(forked_anywhere(log, data.draw(st.integers(1, len(log)))))
