"""What-if over HTTP: answered from memory, and nothing anywhere changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from tests.api.conftest import Api

MESSAGE = {"type": "user_msg", "data": {"message_id": "m9", "content": [{"type": "text", "text": "and?"}]}}


async def everything(api: Api) -> dict[str, Any]:
    """All rows of all tables, but for those of the projector's leadership and progress."""
    found: dict[str, Any] = {}
    async with await psycopg.AsyncConnection.connect(api.database_url) as connection:
        tables = await (
            await connection.execute(
                "select format('%I.%I', schemaname, tablename) from pg_tables"
                " where schemaname not in ('pg_catalog', 'information_schema')"
                " and tablename not in ('leases', 'projections')"
            )
        ).fetchall()
        for (table,) in tables:
            rows = await connection.execute(f"select t::text from {table} t order by 1")
            found[table] = await rows.fetchall()
    return found


async def test_d3_what_would_be_is_answered_and_nothing_is_recorded(api: Api) -> None:
    path = await api.new_conversation({"message": {"content": "hi"}}, projected=True)
    real = (await api("GET", f"{path}/state")).json
    before = await everything(api)

    same = await api("POST", f"{path}/what-if", json={})
    other = await api("POST", f"{path}/what-if", json={"drop": [2], "append": [MESSAGE]})

    assert (same.status, other.status) == (200, 200)
    assert {name: same.json[name] for name in real} == real
    assert (same.json["patch"], same.json["view_patch"]) == ([], [])
    assert other.json["owes"] == [{"kind": "start_turn", "messages": ["m9"]}]
    assert [row["content"]["text"] for row in other.json["messages"]] == ["and?"]
    assert {one["path"].split("/")[1] for one in other.json["patch"]} == {"seq", "waiting"}
    assert other.json["reality"]["owes"] == real["owes"]
    assert sum(len(rows) for rows in before.values()) > 5
    assert before == await everything(api)


async def test_a_line_of_the_log_may_be_appended_as_it_was_shown(api: Api) -> None:
    path = await api.new_conversation({"message": {"content": "hi"}})
    line = (await api("GET", f"{path}/events")).json["items"][1]

    found = await api("POST", f"{path}/what-if", json={"drop": [2], "append": [line]})

    assert found.status == 200
    assert (found.json["seq"], found.json["impossible"]) == (3, [])
    assert found.json["owes"] == [{"kind": "start_turn", "messages": [line["data"]["message_id"]]}]


async def test_changes_that_do_not_fit_are_refused_by_name(api: Api) -> None:
    path = await api.new_conversation({"message": {"content": "hi"}})

    for body, field in [
        ({"drop": ["2"]}, "drop.0"),
        ({"drop": [0]}, "drop.0"),
        ({"drop": [3]}, "drop.0"),
        ({"replace": {"x": {}}}, "replace"),
        ({"replace": {"2": []}}, "replace.2"),
        ({"replace": {"2": {"content": "hi"}}}, "replace.2.content"),
        ({"append": [{}]}, "append.0.type"),
        ({"append": [{"type": "user_msg", "surprise": 1}]}, "append.0.surprise"),
        ({"append": [{"type": "user_msg", "data": {"content": []}}]}, "append.0.data.message_id"),
        ({"append": [{**MESSAGE, "occurred_at": "2026-01-01T00:00:00"}]}, "append.0.occurred_at"),
        ({"at": 3}, "at"),
    ]:
        answer = await api("POST", f"{path}/what-if", json=body)
        assert (answer.status, answer.json["type"]) == (422, "urn:rejoinder:invalid"), body
        assert any(f"{error['field']}.".startswith(f"{field}.") for error in answer.json["errors"]), answer.raw
