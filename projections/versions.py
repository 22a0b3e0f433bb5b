"""Which read models have the form that this code knows: while one is made anew, old and new code run side by side."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, LiteralString

from psycopg import ProgrammingError
from psycopg.errors import FeatureNotSupported

from domain.errors import DomainError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable

    from psycopg import AsyncConnection

    from projections.projection import Projection

STORED: LiteralString = "select name, version from projections where name = any(%s) order by name"


class ProjectionMismatch(Exception):
    """The database holds a read model of another version than this code's; the message says what to do."""


class OtherVersion(Exception):
    """The table has another form than this code knows: it is being made anew, or a newer Rejoinder has made it."""


class Versions:
    """The versions of projections as this code knows them, for those who read their tables."""

    def __init__(self, projections: Iterable[Projection]) -> None:
        self._known = {one.name: one.version for one in projections}
        self._reached: set[str] = set()  # versions only grow: what was as new as ours stays so

    @asynccontextmanager
    async def reading(self, connection: AsyncConnection, *names: str) -> AsyncIterator[None]:
        """Raise `OtherVersion` unless all that the block reads of these tables has the form that this code knows.

        Outside of transactions: a table may change its form between two statements, so they are judged afterwards.
        """
        if not self._reached.issuperset(names):
            await self._check(connection, names)
            self._reached.update(names)
        try:
            yield
        except (ProgrammingError, FeatureNotSupported, DomainError):  # no such column, no such row: in another form
            await self._check(connection, names)
            raise
        await self._check(connection, names)

    async def _check(self, connection: AsyncConnection, names: Collection[str]) -> None:
        for name, version in (await stored_versions(connection, names)).items():
            if version < self._known[name]:
                raise OtherVersion(f"the read model {name} is of an older version until it is rebuilt; try again then")
            if version > self._known[name]:
                raise OtherVersion(f"a newer Rejoinder has rebuilt the read model {name}: ask one of that version")


async def outdated(connection: AsyncConnection, projections: Iterable[Projection]) -> list[Projection]:
    """Return the projections whose stored version is older than this code's."""
    known = {one.name: one for one in projections}
    found = await stored_versions(connection, known)
    return [known[name] for name, version in found.items() if version < known[name].version]


async def refuse_outdated(connection: AsyncConnection, projections: Iterable[Projection]) -> None:
    """Raise `ProjectionMismatch` if a stored version is older than this code's."""
    if old := [one.name for one in await outdated(connection, projections)]:
        raise ProjectionMismatch(
            f"older versions of read models are in the database: {', '.join(old)}; "
            f"run `rejoinder rebuild {' '.join(old)}`, or set REJOINDER_PROJECTION_UPGRADE to auto"
        )


async def refuse_newer(connection: AsyncConnection, projections: Iterable[Projection]) -> None:
    """Raise `ProjectionMismatch` if a stored version is newer than this code's."""
    known = {one.name: one.version for one in projections}
    for name, version in (await stored_versions(connection, known)).items():
        if version > known[name]:
            raise ProjectionMismatch(
                f"{name} is of version {version} in the database, this code's is {known[name]}: "
                "a newer Rejoinder has built it; rebuild it with that one"
            )


async def stored_versions(connection: AsyncConnection, names: Collection[str]) -> dict[str, int]:
    """Return the versions of these projections in the database; those that it does not have are left out."""
    cursor = await connection.execute(STORED, [list(names)], prepare=True)
    return dict(await cursor.fetchall())
