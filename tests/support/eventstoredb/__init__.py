"""A double of EventStoreDB that speaks its protocol to the real clients, and that fails when a test asks for it."""

from __future__ import annotations

from tests.support.eventstoredb.double import Double
from tests.support.eventstoredb.faults import Fault
from tests.support.eventstoredb.security import Security

__all__ = ["Double", "Fault", "Security"]
