"""The contract, kept by the event store on EventStoreDB: over the double, and over real servers where there are any.

``REJOINDER_TEST_ESDB`` names a server by its connection string; with Docker, EventStoreDB and KurrentDB are started.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from infra.eventstoredb import EventStoreDBEventStore
from tests.contract.outage_contract import OutageContract
from tests.contract.samples import caught_up, events, some_stream
from tests.contract.server_contract import ServerContract
from tests.support.eventstoredb import Fault
from tests.support.eventstoredb.fixtures import double, patient
from tests.support.eventstoredb.real import IMAGES, real_server
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.contract.samples import OpenStore
    from tests.support.eventstoredb.process import DoubleProcess

__all__ = ["double"]

RUN = uuid4().hex
"""What the names of this run's streams begin with on a server that others use."""


class TestOnTheDouble(ServerContract):
    @pytest.fixture
    def address(self, double: DoubleProcess) -> str:
        return double.uri

    @pytest.fixture
    def open_store(self, double: DoubleProcess) -> OpenStore:
        return partial(EventStoreDBEventStore, double.uri, patience=PATIENCE_S)


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    yield from real_server(request.param)


@pytest.mark.parametrize("server", ["named", *IMAGES], scope="module", indirect=True)
class TestOnARealServer(ServerContract):
    @pytest.fixture
    def address(self, server: str) -> str:
        return server

    @pytest.fixture
    def open_store(self, server: str) -> OpenStore:
        return partial(EventStoreDBEventStore, server, f"{RUN}-", patience=PATIENCE_S)


class DoubleFaults:
    """Faults of the double, by its control."""

    def __init__(self, double: DoubleProcess) -> None:
        self._double = double

    async def stop(self) -> None:
        self._double.kill()

    async def start(self) -> None:
        self._double.start()

    async def drop_connections(self) -> None:
        await self._double.control.drop_subscriptions()
        await self._double.control.add(Fault("append", "before"))

    @asynccontextmanager
    async def losing_acknowledgements(self) -> AsyncIterator[None]:
        for status in ("UNAVAILABLE", "INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED"):
            await self._double.control.add(Fault("append", "after", status), 3)
            await self._double.control.add(Fault("append", "delay", seconds=0.1), 2)
        await self._double.control.add(Fault("append", "delay", seconds=2.5))
        yield
        assert (await self._double.control.standing())["faults"] == 0


class TestOutagesOfTheDouble(OutageContract):
    @pytest.fixture
    def faults(self, double: DoubleProcess) -> DoubleFaults:
        return DoubleFaults(double)

    @pytest.fixture
    def open_store(self, double: DoubleProcess) -> OpenStore:
        return partial(EventStoreDBEventStore, double.uri, patience=PATIENCE_S)


async def test_l14_stores_with_another_prefix_do_not_see_each_other_and_their_positions_move_on(
    double: DoubleProcess,
) -> None:
    one, other = uuid4().hex, uuid4().hex
    stream = some_stream()
    async with patient(double.uri, one) as idle, patient(double.uri, other) as busy:
        await idle.append(stream, events(1), 0)
        [own] = await idle.read(stream)
        assert await busy.read(stream) == await busy.read_all(0, limit=10) == []
        async with aclosing(idle.subscribe(own.position)) as batches:
            await caught_up(batches)
            mark = (await busy.append(stream, events(100), 0)).position
            async with asyncio.timeout(PATIENCE_S):
                position = own.position
                while position < mark:
                    await busy.append(stream, events(100), await busy_version(busy, stream))
                    batch = await anext(batches)
                    assert not batch.events
                    position = batch.position
    async with patient(double.uri, one) as reopened:
        assert await reopened.head() >= position, "or read models that looked so far would be refused"
        async with aclosing(reopened.subscribe(position)) as batches:
            assert (await caught_up(batches)).events == ()


async def busy_version(store: EventStoreDBEventStore, stream: str) -> int:
    return (await store.read(stream, limit=1))[0].seq
