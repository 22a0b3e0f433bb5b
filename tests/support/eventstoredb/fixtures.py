"""Fixtures: the double of EventStoreDB in the test's own loop, and as a process for the tests of a module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from infra.eventstoredb import EventStoreDBEventStore
from tests.support.eventstoredb.double import Double
from tests.support.eventstoredb.process import DoubleProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest.fixture
async def server() -> AsyncIterator[Double]:
    """A double in the test's own loop."""
    async with Double() as running:
        yield running


@pytest.fixture
async def store(server: Double) -> AsyncIterator[EventStoreDBEventStore]:
    """The event store on it."""
    async with EventStoreDBEventStore(server.uri) as opened:
        yield opened


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoubleProcess]:
    """A double in a process of its own."""
    with DoubleProcess(tmp_path_factory.mktemp("double") / "log") as running:
        yield running
