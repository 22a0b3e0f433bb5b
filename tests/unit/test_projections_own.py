"""A projection of one's own is one short module: a table, a fold, a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projections.projection import Projection, Rows
from projections.tables import Table
from tests.support.given import OPEN_TURN, Fact, called, got, said
from tests.support.projecting import given

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projections.event import Event


def fold(rows: Rows, events: Sequence[Event]) -> None:
    """Keep the newest list that the model wrote."""
    for event in events:
        if event.type == "tool_call" and event.data["name"] == "write_todos":
            for row in rows:
                rows.remove(row["n"])
            for n, todo in enumerate(event.data["args"]["todos"]):
                rows.put({"n": n, "text": todo["text"], "done": todo["done"]})


TODOS = Projection(
    name="todos",
    version=1,
    columns={"n": "int not null", "text": "text not null", "done": "boolean not null"},
    key=("n",),
    fold=fold,
)


def test_todos_are_the_newest_that_the_model_wrote() -> None:
    def wrote(tool_call_id: str, *todos: tuple[str, bool]) -> Fact:
        args = {"todos": [{"text": text, "done": done} for text, done in todos]}
        return called(tool_call_id, name="write_todos", args=args)

    first, second = wrote("c1", ("buy", False), ("cook", False), ("eat", False)), wrote("c2", ("buy", True))
    given(*OPEN_TURN, said(""), first, got("c1"), said(""), second, got("c2")).project(TODOS).then(
        {"n": 0, "text": "buy", "done": True}
    )


def test_a_definition_is_all_the_sql_that_there_is() -> None:
    table = Table(TODOS)
    assert table.create == (
        "create table todos (conversation_id uuid not null, n int not null, text text not null, done boolean not null)"
    )
    assert table.indexes == ["alter table todos add primary key (conversation_id, n)"]
