"""A read model of one's own, as the README shows it: a file that two settings name, served, tested, checked."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import psycopg

from infra.database import Database
from projections.positions import Positions
from tests.support.model_script import call, calls, says
from tests.support.program import run, serve
from tests.support.slack import PATIENCE_S
from tests.support.system import System

if TYPE_CHECKING:
    import pytest

    from tests.support.model_server import ModelServer

README = (Path(__file__).parents[2] / "README.md").read_text()
LEASES_RUN_OUT = "select pg_sleep_until(until) from leases where until > clock_timestamp()"


def example(marker: str) -> str:
    """Return the code after a marker of the README."""
    (code,) = re.findall(rf"<!-- {marker} -->\n```python\n(.*?)```", README, re.DOTALL)
    return str(code)


def test_the_example_is_short_and_its_test_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(example("todo").splitlines()) <= 30
    (tmp_path / "todos.py").write_text(example("todo"))
    (tmp_path / "test_todos.py").write_text(example("todo test"))
    monkeypatch.syspath_prepend(tmp_path)
    try:
        importlib.import_module("test_todos").test_the_newest_list_counts()
    finally:
        for name in ("todos", "test_todos"):
            sys.modules.pop(name, None)


async def test_the_example_serves_a_table_of_what_the_model_wrote(
    database_url: str, model_server: ModelServer, tmp_path: Path
) -> None:
    file = tmp_path / "todos.py"
    file.write_text(example("todo"))
    model_server.expect(
        says(calls(call("write_todos", {"todos": {"buy": False, "cook": False}}))),
        says(calls(call("write_todos", {"todos": ["nonsense"]}, id="call_1"))),
        says(calls(call("write_todos", {"todos": {"buy": True, "cook": False, "eat": False}}, id="call_2"))),
        says("Listed."),
    )
    settings = {
        "database_url": database_url,
        "data_dir": str(tmp_path),
        "model": "openai/scripted",
        "model_api_base": model_server.url,
        "model_api_key": "sk-scripted",
        "tools": f"{file}:write_todos",
        "projections": str(file),
    }
    async with serve("--port", "0", **settings) as served, aiohttp.ClientSession() as session:
        system = System(served.url, session)
        conversation = await system.start("What is there to do?")
        events = await conversation.turn_ends()
        async with Database(database_url, max_connections=1) as database:
            assert await Positions(database).wait(["todos"], events[-1]["position"], PATIENCE_S)
    with psycopg.connect(database_url, autocommit=True) as connection:
        rows = connection.execute("select conversation_id::text, n, todo, done from todos order by n").fetchall()
        connection.execute(LEASES_RUN_OUT)  # those that a server had no time to hand back
    newest = [("buy", True), ("cook", False), ("eat", False)]
    assert rows == [(conversation.id, n, *todo) for n, todo in enumerate(newest)]

    standing = run("projections", "--json", **settings)
    assert "todos" in {item["name"] for item in json.loads(standing.stdout)["items"]}
    kept = run("projections", "--drop", "todos", **settings)
    assert (kept.exit_code, kept.stderr.partition(":")[0]) == (1, "rejoinder")
    dropped = run("projections", "--drop", "todos", **settings | {"projections": ""})
    assert (dropped.exit_code, dropped.stdout) == (0, "todos is dropped")


def test_a_projection_that_cannot_be_loaded_is_one_line_at_start(tmp_path: Path) -> None:
    file = tmp_path / "todos.py"
    file.write_text(example("todo").replace('name="todos"', 'name="conversations"'))
    ended = run("serve", "--port", "0", data_dir=tmp_path, projections=file)
    assert ended.exit_code == 2
    assert ended.stderr == (
        f"rejoinder: REJOINDER_PROJECTIONS: {file}: there is a table named 'conversations' already, "
        "from Rejoinder itself\n"
    )
