"""What a projection's definition must be like; checked when it is made, so that mistakes show at start."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from projections.projection import Projection

NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
TYPES = frozenset(
    {"text", "int", "bigint", "boolean", "float8", "numeric", "uuid", "date", "timestamptz", "json", "jsonb"}
)
_WORDS = """
all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation column
concurrently constraint create cross current_catalog current_date current_role current_schema current_time
current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign freeze from
full grant group having ilike in initially inner intersect into is isnull join lateral leading left like limit localtime
localtimestamp natural not notnull null offset on only or order outer overlaps placing primary references returning
right select session_user similar some symmetric system_user table tablesample then to trailing true union unique user
using variadic verbose when where window with
"""
RESERVED = frozenset(_WORDS.split())
"""Words that SQL keeps for itself (``pg_get_keywords``)."""


class ProjectionDefinitionError(Exception):
    """A projection is defined in a way that cannot work; the message names it and says what to change."""


def check_definition(projection: Projection) -> None:
    """Raise `ProjectionDefinitionError` for what cannot be a table and a fold into it."""
    name = projection.name
    if not _is_name(name) or name.startswith("pg_"):
        raise ProjectionDefinitionError(f"a projection named {name!r}: {_NAMES}, and not begin with pg_")
    if type(projection.version) is not int or projection.version < 1:
        raise _wrong(name, f"version {projection.version!r} must be 1 or more, and grow with each change")
    if not callable(projection.fold):
        raise _wrong(name, "fold must be a function of rows and events")
    for column, spec in projection.columns.items():
        if not _is_name(column) or column == "conversation_id":
            raise _wrong(name, f"a column named {column!r}: {_NAMES}; conversation_id is there anyway")
        if not isinstance(spec, str) or spec.split()[:1] not in [[kind] for kind in TYPES]:
            raise _wrong(name, f"column {column}: {spec!r} must begin with a type: {', '.join(sorted(TYPES))}")
    decides = () if projection.open_while is None else projection.open_while[:1]
    known = {"conversation_id", *projection.columns}
    if unknown := [column for column in (*projection.key, *decides) if column not in known]:
        raise _wrong(name, f"key and open_while name {unknown[0]!r}, which is no column")


_NAMES = "names must be of a-z, 0-9 and _, begin with a letter, have at most 63 characters and be no word of SQL's own"


def _is_name(name: object) -> bool:
    return isinstance(name, str) and NAME.fullmatch(name) is not None and name not in RESERVED


def _wrong(name: str, what: str) -> ProjectionDefinitionError:
    return ProjectionDefinitionError(f"projection {name!r}: {what}")
