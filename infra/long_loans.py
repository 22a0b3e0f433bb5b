"""A database's connections for work of minutes: folding and indexing read models of a long log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from psycopg import AsyncConnection

    from infra.database import Database

LONGEST_S = 6 * 3600.0
"""A machine that is gone is noticed by the connections' own keepalives; only a silent server is waited for."""


class LongLoans:
    """The pool of a database, in whose connections a statement or transaction may take as long as it needs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def connection(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Lend a connection, in autocommit mode. Raises `DatabaseUnavailable`, as `Database.connection` does."""
        return self._database.connection(LONGEST_S)
