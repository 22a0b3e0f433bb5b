"""The event store on PostgreSQL: one table, appends in groups, one reader of live events per process."""

from __future__ import annotations

from infra.postgres_event_store.store import PostgresEventStore

__all__ = ["PostgresEventStore"]
