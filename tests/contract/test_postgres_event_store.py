"""The contract, kept by the event store on PostgreSQL; and what only a database can do to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from infra.postgres_event_store import PostgresEventStore
from tests.contract.event_store_contract import EventStoreContract

if TYPE_CHECKING:
    from tests.contract.event_store_contract import OpenStore


class TestPostgresEventStore(EventStoreContract):
    @pytest.fixture
    def open_store(self, database_url: str) -> OpenStore:
        return lambda: PostgresEventStore(database_url)
