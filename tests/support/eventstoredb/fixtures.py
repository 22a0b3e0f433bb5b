"""Fixtures: the double of EventStoreDB in the test's own loop, and as a process for the tests of a module."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from infra.eventstoredb import EventStoreDBEventStore, clients, subscription
from tests.support.eventstoredb.double import Double
from tests.support.eventstoredb.process import DoubleProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

LONG = 1_000.0
"""Seconds, more than any test waits."""

patient = partial(EventStoreDBEventStore, patience=LONG)


@pytest.fixture
async def server() -> AsyncIterator[Double]:
    """A double in the test's own loop."""
    async with Double() as running:
        yield running


@pytest.fixture
async def store(server: Double, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EventStoreDBEventStore]:
    """The event store on it, which takes no server for dead or silent that is only slow."""
    pinged_never = tuple(option for option in clients.CHANNEL_OPTIONS if "reconnect" in option[0])
    monkeypatch.setattr(clients, "CHANNEL_OPTIONS", pinged_never)
    monkeypatch.setattr(subscription, "SILENCE_SECONDS", LONG)
    async with patient(server.uri) as opened:
        yield opened


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoubleProcess]:
    """A double in a process of its own."""
    with DoubleProcess(tmp_path_factory.mktemp("double") / "log") as running:
        yield running
