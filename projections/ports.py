"""What projections need from outside: connections to the database, and leases that say who leads what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager

    from psycopg import AsyncConnection


class Connections(Protocol):
    """A pool of connections in autocommit mode."""

    def connection(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Lend a connection."""
        ...


class Leases(Protocol):
    """Who leads what, with an epoch that grows at every change of holder."""

    async def acquire(self, key: str, holder: str, ttl_s: float) -> int | None:
        """Take a free lease and return its epoch; None while another holds it."""
        ...

    async def renew(self, keys: Mapping[str, int], holder: str, ttl_s: float) -> set[str]:
        """Prolong leases, given with their epochs; return those that are still held."""
        ...

    async def release(self, keys: Mapping[str, int], holder: str) -> None:
        """Give leases, given with their epochs, back before their end."""
        ...
