"""Load the projections that the settings and installed packages name, and join them to Rejoinder's own."""

from __future__ import annotations

import re
from types import ModuleType
from typing import TYPE_CHECKING

from infra.migrations import TABLE, find_migrations
from infra.user_code import Kind, load
from projections.catalog import PROJECTIONS
from projections.definition import ProjectionDefinitionError
from projections.projection import Projection

if TYPE_CHECKING:
    from collections.abc import Sequence

CREATED = re.compile(r"create (?:unlogged )?table (?:if not exists )?(\w+)", re.IGNORECASE)
OURS = "Rejoinder itself"


def load_projections(entries: Sequence[str]) -> tuple[Projection, ...]:
    """Return Rejoinder's projections, then those of these entries and of the entry points ``rejoinder.projections``.

    An entry is ``path/to/file.py``, ``path/to/file.py:name``, ``module`` or ``module:name``; a module gives what its
    list ``projections`` holds, else every `Projection` in it. Raises `LoadError`, also for a name that is taken.
    """
    projections = Kind(
        plural="projections",
        noun="table",
        complaint=ProjectionDefinitionError,
        read=_projections_of,
        taken=dict.fromkeys(_tables(), OURS),
    )
    return PROJECTIONS + tuple(load(projections, entries))


def _tables() -> set[str]:
    migrations = [TABLE, *(migration.path.read_text("utf-8") for migration in find_migrations())]
    return {name for text in migrations for name in CREATED.findall(text)} | {one.name for one in PROJECTIONS}


def _projections_of(loaded: object) -> list[Projection]:
    if isinstance(loaded, ModuleType):
        exported = getattr(loaded, "projections", None)
        if not isinstance(exported, list | tuple):  # who imports our package has a module of that name
            exported = [one for one in vars(loaded).values() if isinstance(one, Projection) and one not in PROJECTIONS]
        loaded = exported
        if not loaded:
            raise ProjectionDefinitionError("it defines no projections: no list `projections`, no Projection")
    projections: dict[int, Projection] = {}  # one may have two names
    for thing in loaded if isinstance(loaded, list | tuple) else [loaded]:
        if not isinstance(thing, Projection):
            raise ProjectionDefinitionError(f"{type(thing).__name__!r} object: a projection is a Projection")
        projections[id(thing)] = thing
    return list(projections.values())
