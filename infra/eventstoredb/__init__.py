"""The event store on EventStoreDB or KurrentDB: exact appends, filtered reads of `$all`, one live subscription."""

from __future__ import annotations

from infra.eventstoredb.store import EventStoreDBEventStore

__all__ = ["EventStoreDBEventStore"]
