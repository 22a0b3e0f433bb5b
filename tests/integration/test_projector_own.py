"""A projection of one's own in a real table: every type that it may have, and rows that come, change and go."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import UUID

from projections.definition import TYPES
from projections.projection import Projection, Rows
from tests.support.given import OPEN_TURN, called, got, history, said, stored, suspended
from tests.support.projecting import fold_whole
from tests.support.read_side import open_read_side

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projections.event import Event


def fold(rows: Rows, events: Sequence[Event]) -> None:
    """Keep a row for each open call, with a value of each type or none."""
    for event in events:
        if event.type == "tool_call":
            rows.put(dict.fromkeys(COLUMNS) | {"call": event.data["tool_call_id"]})
        if event.type == "suspension":
            rows.put(EVERY_TYPE | {"call": event.data["tool_call_id"]})
        if event.type == "tool_result":
            rows.remove(event.data["tool_call_id"])


EVERY_TYPE = {
    "c_text": "🦜 'quoted' \\ \n",
    "c_int": -(2**31),
    "c_bigint": 2**63 - 1,
    "c_boolean": True,
    "c_float8": 0.1,
    "c_numeric": Decimal("12345678901234567890.123456789"),
    "c_uuid": UUID(int=7),
    "c_date": date(2026, 1, 1),
    "c_timestamptz": datetime(2026, 1, 1, 12, tzinfo=UTC),
    "c_json": {"b": [1, None, "é"], "a": 10**30},
    "c_jsonb": [{"x": 1.5}, "text"],
}
COLUMNS = {"call": "text not null"} | {column: column.removeprefix("c_") for column in EVERY_TYPE}
CALLS = Projection(name="open_calls", version=1, columns=COLUMNS, key=("call",), fold=fold, indexes=("(c_date)",))


async def test_r4_a_row_of_every_type_is_as_the_fold_made_it_until_it_is_removed(database_url: str) -> None:
    assert {column.removeprefix("c_") for column in EVERY_TYPE} == TYPES
    facts = (*OPEN_TURN, said(""), called("c1"), called("c2", gated=True), called("c3"), suspended("c2"), got("c1"))
    log = [stored(event) for event in history(*facts)]
    async with open_read_side(database_url, [CALLS]) as read_side, read_side.projecting():
        for event in log:
            await read_side.reached(await read_side.append([event]))
        rows = await read_side.rows(CALLS)
    assert rows == fold_whole(CALLS, log)
    assert [row["call"] for row in rows.values()] == ["c2", "c3"]


def fold_asked(rows: Rows, events: Sequence[Event]) -> None:
    """Keep the calls that people were asked about: nothing but their keys."""
    for event in events:
        if event.type == "suspension":
            rows.put({"call": event.data["tool_call_id"]})


ASKED = Projection(name="asked_about", version=1, columns={"call": "text not null"}, key=("call",), fold=fold_asked)


async def test_r4_rows_that_are_nothing_but_their_keys_are_projected_too(database_url: str) -> None:
    log = [stored(event) for event in history(*OPEN_TURN, said(""), called("c1", gated=True), suspended("c1"))]
    async with open_read_side(database_url, [ASKED]) as read_side, read_side.projecting():
        for event in log:
            await read_side.reached(await read_side.append([event]))
        rows = await read_side.rows(ASKED)
    assert [row["call"] for row in rows.values()] == ["c1"]
