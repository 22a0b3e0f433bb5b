"""What two versions of the code make of one log, compared: state by state, then row by row."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from api.debugging.patch import json_patch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

Json = dict[str, Any]
Said = Callable[[], Awaitable[Json]]
"""Returns the next thing that a version says of the log, as `api.debugging.fold_log` has it."""
Rows = dict[tuple[str, str], Json]


class FirstDifference(BaseModel):
    """The first event after which the aggregates differ.

    `patch` (RFC 6902) leads from the state here to the one there; `error`: what that version says who cannot take it.
    """

    seq: int
    type: str
    patch: list[Json]
    owes_here: list[Json] | None
    owes_there: list[Json] | None
    error_here: str | None
    error_there: str | None


class RowDifference(BaseModel):
    """A column of a row that differs; `column` None: the row, or the whole read model, is on one side only."""

    projection: str
    key: Json
    column: str | None
    here: Any
    there: Any


class Comparison(BaseModel):
    """How this version of the code and another one fold the same events.

    What only one of them knows (read models, columns, members of the state) is named once, and no difference.
    """

    version: str
    events: int
    first_difference: FirstDifference | None
    rows: list[RowDifference]
    only_here: list[str]
    only_there: list[str]

    @property
    def differs(self) -> bool:
        """Whether anything does."""
        return bool(self.first_difference or self.rows)


async def compare(version: str, here: Said, there: Said) -> Comparison:
    """Compare what two versions say, event by event while both can go on, then row by row."""
    ours, theirs = (await here())["projections"], (await there())["projections"]
    told = _Told()
    events = 0
    first: FirstDifference | None = None
    mine, other = await here(), await there()
    while "seq" in mine and "seq" in other:
        events += 1
        first = first or told.difference(mine, other)
        mine, other = await here(), await there()
    while "seq" in mine:
        events, mine = events + 1, await here()
    while "seq" in other:
        other = await there()
    told.only(sorted(ours), sorted(theirs))
    common = ours.keys() & theirs.keys()
    made_here, made_there = await _rows(mine, here, common), await _rows(other, there, common)
    return Comparison(
        version=version,
        events=events,
        first_difference=first,
        rows=list(told.rows(made_here, made_there)),
        only_here=list(told.here),
        only_there=list(told.there),
    )


async def _rows(said: Json, more: Said, projections: Collection[str]) -> Rows:
    """Return rows by read model and key; that of a read model which cannot be folded has its error."""
    rows: Rows = {}
    while "projection" in said:
        if said["projection"] in projections:
            key = json.dumps(said.get("key"))
            rows[said["projection"], key] = said.get("row") or {"error": said["error"]}
        said = await more()
    return rows


class _Told:
    """Compares, and keeps the names of what only one version knows."""

    def __init__(self) -> None:
        self.here: dict[str, None] = {}
        self.there: dict[str, None] = {}

    def only(self, ours: Iterable[str], theirs: Iterable[str], where: str = "") -> None:
        """Take note of the names that are on one side."""
        ours, theirs = dict.fromkeys(ours), dict.fromkeys(theirs)
        self.here |= {where + name: None for name in ours if name not in theirs}
        self.there |= {where + name: None for name in theirs if name not in ours}

    def difference(self, mine: Json, other: Json) -> FirstDifference | None:
        """Return how the two differ after an event, if they do."""
        patch: list[Json] = []
        if "state" in mine and "state" in other:
            self.only(mine["state"], other["state"], "state.")
            patch = json_patch(*_common(mine["state"], other["state"]))
        if not patch and mine.get("owes") == other.get("owes") and mine.get("error") == other.get("error"):
            return None
        return FirstDifference(
            seq=mine["seq"],
            type=mine["type"],
            patch=patch,
            owes_here=mine.get("owes"),
            owes_there=other.get("owes"),
            error_here=mine.get("error"),
            error_there=other.get("error"),
        )

    def rows(self, here: Rows, there: Rows) -> Iterator[RowDifference]:
        """Yield every difference of the rows."""
        for place in here | there:
            projection, key = place[0], json.loads(place[1]) or {}
            mine, other = here.get(place), there.get(place)
            if mine is None or other is None:
                yield RowDifference(projection=projection, key=key, column=None, here=mine, there=other)
                continue
            self.only(mine, other, f"{projection}.")
            mine, other = _common(mine, other)
            for column in mine:
                if mine[column] != other[column]:
                    yield RowDifference(
                        projection=projection, key=key, column=column, here=mine[column], there=other[column]
                    )


def _common(mine: Json, other: Json) -> tuple[Json, Json]:
    names = [name for name in mine if name in other]
    return {name: mine[name] for name in names}, {name: other[name] for name in names}
