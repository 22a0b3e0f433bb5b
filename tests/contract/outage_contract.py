"""What the stores on a server do when it is restarted, hangs up or loses acknowledgements: nothing lost or repeated."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Protocol

import pytest

from domain.event_store import Appended, EventStore, StoredEvent, StoreError
from tests.contract.samples import caught_up, events, insisted, seqs, some_stream, take
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from domain.event_store import Batch
    from tests.contract.samples import OpenStore


class Faults(Protocol):
    """What an adapter's tests can do to its server; the server is theirs alone."""

    async def stop(self) -> None:
        """Stop the server at once, whoever uses it."""
        ...

    async def start(self) -> None:
        """Start it again, with what it had acknowledged."""
        ...

    async def drop_connections(self) -> None:
        """Break the connections, the subscriptions' at any rate, or let their calls fail."""
        ...

    def losing_acknowledgements(self) -> AbstractAsyncContextManager[None]:
        """Let appends be written, some of them at least, without their writer being told."""
        ...


class OutageContract:
    """Subclass it and give it the fixtures `open_store` and `faults`."""

    @pytest.fixture
    async def store(self, open_store: OpenStore) -> AsyncIterator[EventStore]:
        async with open_store() as store:
            yield store

    async def test_l4_an_append_whose_acknowledgement_is_lost_is_written_once(
        self, store: EventStore, faults: Faults
    ) -> None:
        async def write(stream: str) -> list[Appended]:
            return [await store.append(stream, events(2), 2 * n) for n in range(15)]

        start, streams = await store.head(), [some_stream() for _ in range(4)]
        async with faults.losing_acknowledgements():
            receipts = await asyncio.gather(*map(write, streams))
        log = await store.read_all(start, limit=10_000)
        for stream, received in zip(streams, receipts, strict=True):
            own = [one for one in log if one.stream == stream]
            assert seqs(own) == list(range(1, 31))
            assert received == [Appended(one.seq, one.position) for one in own[1::2]]

    async def test_l6_live_subscriptions_go_on_without_a_gap_when_they_are_dropped(
        self, store: EventStore, faults: Faults
    ) -> None:
        stream, start = some_stream(), await store.head()
        async with (
            aclosing(store.subscribe(start)) as everything,
            aclosing(store.subscribe_stream(stream, 0)) as of_stream,
        ):
            await asyncio.gather(caught_up(everything), caught_up(of_stream))
            for n in range(4):
                await faults.drop_connections()
                await store.append(stream, events(3), 3 * n)
                for batches in (everything, of_stream):
                    assert seqs(await take(batches, 3)) == [3 * n + 1, 3 * n + 2, 3 * n + 3]

    async def test_l6_a_live_subscription_sees_every_event_once_while_the_server_is_restarted(
        self, store: EventStore, faults: Faults
    ) -> None:
        start = await store.head()
        enough = asyncio.Event()

        async def write(stream: str) -> int:
            version = 0
            while not enough.is_set():
                version = (await store.append(stream, events(2), version)).seq
            return version

        async with aclosing(store.subscribe(start)) as batches:
            await caught_up(batches)
            writing = asyncio.gather(*(write(some_stream()) for _ in range(4)))
            seen: list[StoredEvent] = []
            for _ in range(2):
                seen += await take(batches, 40)
                await faults.stop()
                await faults.start()
            seen += await take(batches, 40)
            enough.set()
            written = sum(await writing)
            seen += await take(batches, written - len(seen))
        assert len(seen) == written
        assert seen == await store.read_all(start, limit=written + 1)

    async def test_an_outage_is_borne_for_a_while_and_then_an_error_and_its_append_can_be_settled(
        self, open_store: OpenStore, faults: Faults
    ) -> None:
        async with AsyncExitStack() as stack, open_store() as patient:
            impatient = await insisted(lambda: stack.enter_async_context(open_store(patience=1)))
            stream, other, first, appended = some_stream(), some_stream(), events(1), events(2)
            receipt = await insisted(lambda: impatient.append(stream, first, 0))

            async def subscribed() -> AsyncGenerator[Batch, None]:
                batches = impatient.subscribe_stream(stream, 1)
                await caught_up(batches)
                return batches

            batches = await stack.enter_async_context(aclosing(await insisted(subscribed)))
            await faults.stop()
            waiting = asyncio.create_task(patient.append(other, events(1), 0))
            try:
                attempts = (
                    impatient.append(stream, appended, 1),
                    impatient.read(stream),
                    impatient.read_all(0, limit=1),
                    impatient.head(),
                    impatient.delete(other),
                )
                outcomes = await asyncio.gather(*attempts, return_exceptions=True)
                assert [type(error) for error in outcomes] == [StoreError] * 5
            finally:
                await faults.start()
            async with asyncio.timeout(PATIENCE_S):
                assert (await waiting).seq == 1
            settled = await insisted(lambda: impatient.append(stream, appended, 1))
            assert settled.seq == 3
            assert settled.position > receipt.position
            assert seqs(await take(batches, 2)) == [2, 3]
