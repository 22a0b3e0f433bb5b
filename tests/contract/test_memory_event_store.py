"""The contract, kept by the event store in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from infra.memory_event_store import MemoryEventStore
from tests.contract.event_store_contract import EventStoreContract

if TYPE_CHECKING:
    from tests.contract.samples import OpenStore


class TestMemoryEventStore(EventStoreContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        store = MemoryEventStore()

        def opened(*, patience: float = 0) -> MemoryEventStore:
            return store

        return opened
