"""The check of read models against the log: each conversation is folded again and compared with the rows there are."""

from __future__ import annotations

from collections import defaultdict
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, LiteralString
from uuid import UUID

from psycopg import sql

from domain.event_store import STREAM_DELETED
from domain.wire import conversation_of
from projections.differences import Difference, compare, unfoldable
from projections.rebuild.folding import FoldError, Folding
from projections.tables import Table
from projections.versions import ProjectionMismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from psycopg import AsyncConnection

    from domain.event_store import StoredEvent
    from projections.ports import Connections
    from projections.projection import Projection
    from projections.rebuild.folding import Made
    from projections.rebuild.ordered_log import OrderedLog, Slice

SLICE_EVENTS = 10_000
MOST_SHOWN = 20
"""Of each projection; more are counted."""
FIRST, LAST = 0, 2**128 - 1

# The locks come before the snapshot: a table that is replaced meanwhile would look empty in it.
SNAPSHOT: LiteralString = "set transaction isolation level repeatable read, read only"
PATIENCE: LiteralString = "set local idle_in_transaction_session_timeout = '5min'"
CHECKPOINTS: LiteralString = "select name, version, position from projections where name = any(%s)"
PARKED: LiteralString = "select projection, conversation_id from parked where projection = any(%s)"


@dataclass(slots=True)
class Verdict:
    """What was found of one projection: rows compared and differences, of which the first are `shown`.

    One that is `unbuilt` has not folded anything of the log yet: there was nothing to compare.
    Rows of conversations that were `parked` meanwhile are older than the log by design: they are left out.
    """

    projection: Projection
    unbuilt: bool = False
    rows: int = 0
    differences: int = 0
    shown: list[Difference] = field(default_factory=list)
    parked: set[UUID] = field(default_factory=set)

    def take(self, differences: Sequence[Difference]) -> None:
        """Count differences, and keep the first."""
        self.differences += len(differences)
        self.shown += differences[: MOST_SHOWN - len(self.shown)]


async def verify(
    database: Connections,
    log: OrderedLog,
    projections: Sequence[Projection],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Verdict]:
    """Fold the log again and compare, slice by slice, each at one position of each projection, while they move on.

    `progress` is told the events done and in all. Raises `ProjectionMismatch` for a table of another version: it
    cannot say what should be there.
    """
    verdicts = [Verdict(projection) for projection in projections]
    tables = {projection.name: Table(projection) for projection in projections}
    slices = await log.slices(SLICE_EVENTS)
    done, total = 0, sum(piece.events for piece in slices)
    for piece in slices:
        async with database.connection() as connection, connection.transaction():
            await connection.execute(SNAPSHOT)
            await connection.execute(PATIENCE)
            await _Check(connection, log, piece, verdicts, tables).run()
        done += piece.events
        progress(done, total)
    return verdicts


class _Check:
    """The check of one slice, in one snapshot."""

    def __init__(
        self,
        connection: AsyncConnection,
        log: OrderedLog,
        piece: Slice,
        verdicts: Sequence[Verdict],
        tables: Mapping[str, Table],
    ) -> None:
        self._connection, self._log, self._piece = connection, log, piece
        self._verdicts, self._tables = verdicts, tables
        self._excused: set[tuple[str, UUID]] = set()
        self._deleted: set[UUID] = set()

    async def run(self) -> None:
        """Lock the tables against being replaced, take the snapshot, and compare."""
        names = [verdict.projection.name for verdict in self._verdicts]
        tables = sql.SQL(", ").join(map(sql.Identifier, names))
        await self._connection.execute(sql.SQL("lock table {} in access share mode").format(tables))
        together: dict[int, list[Verdict]] = defaultdict(list)
        found = await (await self._connection.execute(CHECKPOINTS, [names])).fetchall()
        checkpoints = {name: (version, position) for name, version, position in found}
        for verdict in self._verdicts:
            version, position = checkpoints.get(verdict.projection.name, (0, 0))
            if version != verdict.projection.version:
                raise ProjectionMismatch(
                    f"{verdict.projection.name} is of version {version} in the database, this code's is "
                    f"{verdict.projection.version}: verify it with the Rejoinder that made it, or rebuild it"
                )
            verdict.unbuilt |= position == 0 and self._piece.events > 0
            together[position].append(verdict)
        self._excused = set(await (await self._connection.execute(PARKED, [names])).fetchall())
        for verdict in self._verdicts:
            verdict.parked |= {one for name, one in self._excused if name == verdict.projection.name}
        for position, verdicts in together.items():
            await self._compare(position, verdicts)

    async def _compare(self, position: int, verdicts: Sequence[Verdict]) -> None:
        first, last = self._ends()
        by_name = {verdict.projection.name: verdict for verdict in verdicts}

        def refused(error: FoldError) -> None:
            if (error.name, error.conversation_id) not in self._excused:
                self._excused.add((error.name, error.conversation_id))
                by_name[error.name].take([unfoldable(error)])

        folding = Folding([verdict.projection for verdict in verdicts], refused)
        async with aclosing(self._log.read(self._piece, position)) as pages:
            async for page in pages:
                self._note_deleted(page, position)
                folding.take(page)
                if folding.finished is not None and folding.finished.int >= first:
                    await self._diff(verdicts, folding.take_made(), first, folding.finished.int)
                    first = folding.finished.int + 1
        folding.finish()
        await self._diff(verdicts, folding.take_made(), first, last)

    def _ends(self) -> tuple[int, int]:
        """Return the first and last id that the slice's conversations may have."""
        first, behind = (conversation_of(name) if name else None for name in self._piece[:2])
        return first.int if first else FIRST, behind.int - 1 if behind else LAST

    def _note_deleted(self, page: Sequence[StoredEvent], position: int) -> None:
        for event in page:
            if (
                event.type == STREAM_DELETED
                and event.position > position
                and (deleted := conversation_of(event.stream))
            ):
                self._deleted.add(deleted)

    async def _diff(self, verdicts: Sequence[Verdict], made: Sequence[Made], first: int, last: int) -> None:
        for verdict, new in zip(verdicts, made, strict=True):
            table, name = self._tables[verdict.projection.name], verdict.projection.name
            excused = {one for excused, one in self._excused if excused == name} | self._deleted
            expected = {table.key_of(row): row for row in new.rows if row["conversation_id"] not in excused}
            found = await table.between(self._connection, UUID(int=first), UUID(int=last))
            actual = [values for values in found if values[0] not in excused]
            verdict.rows += len(actual)
            verdict.take(await compare(self._connection, table, expected, actual))
