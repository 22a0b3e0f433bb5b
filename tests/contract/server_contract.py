"""What the stores on a server do besides: several processes share them, and one that is stopped harms no other."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import TYPE_CHECKING

from tests.contract.event_store_contract import EventStoreContract
from tests.contract.samples import event, events, some_stream, take
from tests.support.slack import PATIENCE_S, SLACK_S

if TYPE_CHECKING:
    from domain.event_store import EventStore
    from tests.contract.samples import OpenStore

ROOT = Path(__file__).parents[2]


class ServerContract(EventStoreContract):
    """Give it the fixture `address` besides: what `tests.crash.log_writer` takes for the same store."""

    async def test_l6_events_of_several_nodes_are_seen_once_and_in_order(self, open_store: OpenStore) -> None:
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(open_store()) for _ in range(3)]
            start = await stores[0].head()

            async def write(store: EventStore, stream: str) -> None:
                for n in range(20):
                    await store.append(stream, events(2), 2 * n)

            readers = [take(store.subscribe(start), 3 * 8 * 40) for store in stores]
            writers = [write(store, some_stream()) for store in stores for _ in range(8)]
            *seen, _ = await asyncio.gather(*readers, asyncio.gather(*writers))
            log = await stores[0].read_all(start, limit=10_000)
        assert len(log) == 3 * 8 * 40
        assert seen == [log, log, log]

    async def test_l3_one_of_many_appends_of_several_nodes_wins(self, open_store: OpenStore) -> None:
        async with open_store() as one, open_store() as other:
            stream, decisions = some_stream(), [events(1) for _ in range(20)]
            appends = [store.append(stream, decisions[n], 0) for n in range(20) for store in (one, other)]
            outcomes = await asyncio.gather(*appends, return_exceptions=True)
            [won] = await other.read(stream)
        receipts = [result for result in outcomes if not isinstance(result, BaseException)]
        assert len(receipts) == 2, "the winner's, and the original one for the other node's repeat of it"
        assert {receipt.position for receipt in receipts} == {won.position}

    async def test_l12_a_stopped_process_does_not_stop_the_appends_of_others(
        self, store: EventStore, address: str, tmp_path: Path
    ) -> None:
        writer = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.crash.log_writer", address, some_stream(), str(tmp_path / "journal"), cwd=ROOT
        )
        slowest = 0.0
        try:
            async with aclosing(store.subscribe(await store.head())) as batches:
                for _ in range(12):
                    await take(batches, 100)  # it is at work
                    writer.send_signal(signal.SIGSTOP)
                    began = time.monotonic()
                    async with asyncio.timeout(PATIENCE_S):
                        await store.append(some_stream(), [event()], 0)
                    slowest = max(slowest, time.monotonic() - began)
                    writer.send_signal(signal.SIGCONT)
        finally:
            writer.kill()
            await writer.wait()
        assert slowest < 2 + SLACK_S, "an append had to wait for the stopped process"
