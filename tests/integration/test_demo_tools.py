"""The demo tools at work: an outbox that keeps each email once."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from commands.agent.tool_run import run_tool
from domain.parts import text_of
from domain.scope import LOCAL
from domain.tools import ToolContext, Toolset
from infra.demo_tools import OUTBOX, demo_tools, record_once

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any


async def _record(name: str, n: int, value: Any) -> None:
    raise AssertionError("the demo tools take no steps")


async def _run(data_dir: Path, name: str, args: dict[str, str], tool_call_id: str = "call_1") -> str:
    tool = Toolset(demo_tools(data_dir)).get(name)
    assert tool is not None
    outcome = await run_tool(tool, args, ToolContext(tool_call_id, UUID(int=1), LOCAL, {}, record=_record))
    assert outcome.status == "ok"
    return text_of(outcome.content)


def test_the_demo_shows_every_executor_and_a_gate(tmp_path: Path) -> None:
    tools = Toolset(demo_tools(tmp_path))

    assert [(tool.name, tool.executor, tool.gate) for tool in tools] == [
        ("current_time", "server", "never"),
        ("send_email", "server", "always"),
        ("ask_user", "human", "never"),
        ("get_location", "client", "never"),
    ]
    assert all(tool.description for tool in tools)
    assert not list(tmp_path.iterdir())


async def test_the_time_is_told_in_utc(tmp_path: Path) -> None:
    assert datetime.fromisoformat(await _run(tmp_path, "current_time", {})).utcoffset() == timedelta(0)


async def test_t4_an_email_is_in_the_outbox_once_however_often_its_call_runs(tmp_path: Path) -> None:
    data_dir = tmp_path / "new"
    email = {"to": "ada@example.org", "body": "hi\nthere \u2028 ü"}

    for tool_call_id in ("call_1", "call_2", "call_1"):
        assert "ada@example.org" in await _run(data_dir, "send_email", email, tool_call_id)

    lines = (data_dir / OUTBOX).read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"id": f"call_{n}", **email} for n in (1, 2)]


def test_a_line_that_was_cut_off_is_written_again_whole(tmp_path: Path) -> None:
    path = tmp_path / OUTBOX
    record_once(path, {"id": "call_1"})
    path.write_bytes(path.read_bytes() + b'{"id": "call_2", "to"')

    record_once(path, {"id": "call_2"})

    assert path.read_bytes() == b'{"id": "call_1"}\n{"id": "call_2"}\n'


def test_concurrent_runs_keep_every_line_whole(tmp_path: Path) -> None:
    path = tmp_path / OUTBOX

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: record_once(path, {"id": n % 20, "body": "x" * 5_000}), range(60)))

    assert sorted(json.loads(line)["id"] for line in path.read_bytes().splitlines()) == list(range(20))
