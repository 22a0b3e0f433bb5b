"""Bring a database's schema up to the code's: numbered SQL files, each applied once, in order, in a transaction."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from psycopg import Error, sql

from infra.database import Database

if TYPE_CHECKING:
    from psycopg import AsyncConnection

logger = logging.getLogger(__name__)

DIRECTORY = Path(__file__).with_suffix("")

LOCK = "select pg_advisory_xact_lock(hashtextextended('rejoinder migrations', 0))"
TABLE = """
create table if not exists migrations (
    number int primary key, name text not null, applied_at timestamptz not null default now()
)
"""


class MigrationError(Exception):
    """The database's schema does not fit this code; the message says what to do."""


class Migration(NamedTuple):
    """One numbered file of SQL."""

    number: int
    path: Path


def find_migrations(directory: Path = DIRECTORY) -> list[Migration]:
    """Return the migrations of a directory (``NNNN_name.sql``), ascending by number."""
    return sorted(Migration(int(path.name[:4]), path) for path in directory.glob("[0-9][0-9][0-9][0-9]_*.sql"))


async def migrate(dsn: str, directory: Path = DIRECTORY) -> None:
    """Apply what the database lacks; processes that start together wait for each other.

    Raises `MigrationError` if the database has seen a migration that this code does not know or refuses one, and
    what `Database.connect` raises.
    """
    migrations = find_migrations(directory)
    async with await Database(dsn).connect() as connection:
        while await _apply_next(connection, migrations):
            pass


async def _apply_next(connection: AsyncConnection, migrations: list[Migration]) -> bool:
    """Apply the first migration that is missing; False if none is. The lock ends with the transaction (poolers)."""
    async with connection.transaction():
        await connection.execute(LOCK)
        await connection.execute(TABLE)
        applied = {number for (number,) in await (await connection.execute("select number from migrations")).fetchall()}
        if unknown := applied - {migration.number for migration in migrations}:
            raise MigrationError(
                f"the database has migration {max(unknown):04d}, which this version of Rejoinder does not know: "
                "it was last used by a newer one; run that, or use another database"
            )
        missing = next((migration for migration in migrations if migration.number not in applied), None)
        if missing is None:
            return False
        try:
            await connection.execute(sql.SQL(missing.path.read_text("utf-8")))
        except Error as exc:
            raise MigrationError(f"the database refuses migration {missing.path.stem}: {exc}") from exc
        await connection.execute(
            "insert into migrations (number, name) values (%s, %s)", (missing.number, missing.path.stem)
        )
    logger.info("applied migration %s", missing.path.stem, extra={"action": "migration_applied"})
    return True
