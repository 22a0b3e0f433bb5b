"""What a projection is: a table, and a pure fold of one conversation's events into its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, LiteralString

from projections.definition import check_definition

if TYPE_CHECKING:
    from uuid import UUID

    from projections.event import Event

Row = dict[str, Any]
"""Column name → value; a json column holds the plain value, a timestamptz an aware datetime."""

Key = tuple[Any, ...]


class Rows:
    """The rows of one conversation in one table, as a fold sees and changes them.

    Between calls of a fold only *open* rows are kept, those that later events may still change; see
    `Projection.open_while`. A row that was put is never changed in place: put another one.
    """

    def __init__(self, projection: Projection, conversation_id: UUID, rows: Iterable[Row] = ()) -> None:
        self.conversation_id = conversation_id
        self._projection = projection
        self._open: dict[Key, Row] = {projection.key_of(row): row for row in rows}
        self._changed: dict[Key, Row | None] = {}

    def __iter__(self) -> Iterator[Row]:
        """Go through the open rows, in the order in which they were first put; they may be put meanwhile."""
        return iter(list(self._open.values()))

    def get(self, *key: Any) -> Row | None:
        """Return an open row by its key (without the conversation), None if there is none."""
        return self._open.get(key)

    def put(self, row: Row) -> None:
        """Insert or replace a row; `conversation_id` is filled in."""
        row["conversation_id"] = self.conversation_id
        key = self._projection.key_of(row)
        self._changed[key] = row
        if self._projection.is_open(row):
            self._open[key] = row
        else:
            self._open.pop(key, None)

    def remove(self, *key: Any) -> None:
        """Delete a row."""
        self._changed[key] = None
        self._open.pop(key, None)

    def take_changes(self) -> dict[Key, Row | None]:
        """Return what was put (None: removed) since the last call, by key."""
        changes, self._changed = self._changed, {}
        return changes


Fold = Callable[[Rows, Sequence["Event"]], None]
"""Changes the rows by the next events of that conversation, in order. However they are cut, the result is the same.

Pure: no clock, no serial, no lookup, no I/O; time is `Event.occurred_at`, ids derive from the events'.
"""


NEVER: tuple[LiteralString, frozenset[str]] = ("conversation_id", frozenset())
"""The `open_while` of rows that never change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """A read model: one table of its name, made of ``conversation_id``, `columns` and `extra`.

    `version` grows with every change of the table or the fold: the table is then built anew. No SQL here names a
    schema: a rebuild works in another one. Raises `ProjectionDefinitionError` for what cannot be a table.
    """

    name: LiteralString
    version: int
    columns: Mapping[LiteralString, LiteralString]
    """Name → type (one of `projections.definition.TYPES`) and constraints, such as ``"text not null"``."""
    fold: Fold
    streams: Literal["conversations", "summaries", "both"] = "conversations"
    """Whose events it folds: the conversations' own, those of their sibling streams `summary-…`, or all, in order."""
    key: tuple[LiteralString, ...] = ()
    """The primary key is ``conversation_id`` and these columns."""
    open_while: tuple[LiteralString, frozenset[str]] | None = None
    """A text column and its values with which a row may still change; None: every row may, for ever."""
    indexes: tuple[LiteralString, ...] = ()
    """What follows ``create index on TABLE``."""
    extra: tuple[LiteralString, ...] = ()
    """Definitions of columns that the fold neither reads nor writes."""
    announce: LiteralString | None = None
    """A statement that ends each live transaction which changed rows of ``%(conversations)s``: it notifies."""
    carry_over: LiteralString | None = None
    """Takes what `extra` columns hold over from ``NAME_former`` when a rebuilt table takes its place."""
    is_void: Callable[[Row], bool] | None = None
    """Says of a row that the read model is as good without it: a rebuild leaves it out, a check does not miss it."""
    key_columns: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        check_definition(self)
        object.__setattr__(self, "key_columns", ("conversation_id", *self.key))

    def key_of(self, row: Row) -> Key:
        """Return the row's key without the conversation."""
        return tuple([row[column] for column in self.key])

    def is_open(self, row: Row) -> bool:
        """Say whether later events may change the row."""
        return self.open_while is None or row[self.open_while[0]] in self.open_while[1]
