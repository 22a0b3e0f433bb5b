"""The commands that look at the stores, beside a server and without one, and those that need none."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from projections.catalog import PROJECTIONS
from tests.support.program import ROOT, Program, data_directory, environment, fetched, run
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMANDS = tuple(
    tuple(command.split())
    for command in (
        "",
        "serve",
        "chat",
        "events",
        "replay",
        "diff",
        "trace",
        "what-if",
        "export",
        "import",
        "projections",
        "pause",
        "resume",
        "retry",
        "config",
        "keys",
        "keys create",
    )
)


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with data_directory() as directory:
        yield directory


def test_events_and_projections_are_shown_beside_a_server_and_without_one(data_dir: Path) -> None:
    with Program("serve", "--port", "0", data_dir=data_dir) as server:
        url = server.url()
        said = run("chat", "--url", url, typed="hello there\n").stdout
        conversation = said.splitlines()[0].removeprefix("conversation ")
        beside = run("events", conversation, "--json", data_dir=data_dir)
        with Program("events", conversation, "--follow", data_dir=data_dir) as following:
            following.wait_for("turn 1 completed")
            run("chat", conversation, "--url", url, typed="and again\n")
            following.wait_for("turn 2 completed")
            followed = following.stop(signal.SIGINT)
        path = f"{url}/v1/conversations/{conversation}"
        position = fetched(f"{path}/events?limit=1")["items"][0]["position"]
        fetched(f"{path}?wait_ms=30000&min_position={position}")
        assert server.stop().exit_code == 0
    alone = run("events", conversation, data_dir=data_dir)
    standing = run("projections", "--json", data_dir=data_dir)

    events = [json.loads(line) for line in beside.stdout.splitlines()]
    assert [event["seq"] for event in events] == [1, 2, 3, 4, 5]
    assert {event["conversation_id"] for event in events} == {conversation}
    assert events[1]["data"]["content"] == [{"type": "text", "text": "hello there"}]
    assert (followed.exit_code, followed.stderr) == (130, "")
    assert alone.stdout == followed.stdout, "followed or not, the same rows"
    assert alone.stdout.splitlines()[4].endswith("  assistant_msg         You said: hello there")
    items = {item["name"]: item for item in json.loads(standing.stdout)["items"]}
    assert items["conversations"]["status"] in ("waiting", "running"), "its lease may not have run out"
    assert items["conversations"]["position"] >= position
    assert items["conversations"]["lag_events"] == 0


def test_a_conversation_that_there_is_not_is_said_and_a_database_of_ones_own_is_shown(database_url: str) -> None:
    unknown = run("events", str(UUID(int=0)), database_url=database_url)
    table = run("projections", database_url=database_url)

    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert unknown.stderr == f"rejoinder: there is no conversation {UUID(int=0)}\n"
    head, *rows = table.stdout.splitlines()
    assert head.split()[:4] == ["name", "version", "generation", "status"]
    assert {row.split()[0]: row.split()[3] for row in rows} == dict.fromkeys((one.name for one in PROJECTIONS), "new")


def test_who_reads_only_the_beginning_ends_the_command_in_peace(data_dir: Path) -> None:
    with Program("serve", "--port", "0", data_dir=data_dir) as server:
        said = run("chat", "--url", server.url(), typed="hello\n").stdout
        conversation = said.splitlines()[0].removeprefix("conversation ")
        command = [sys.executable, "-m", "api", "events", conversation, "--json"]
        with subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(data_dir=data_dir),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as reading:
            assert reading.stdout is not None
            assert reading.stderr is not None
            reading.stdout.close()
            assert (reading.wait(PATIENCE_S), reading.stderr.read()) == (0, "")


def test_config_shows_what_is_in_force_without_secrets() -> None:
    ended = run(
        "config",
        database_url="postgresql://ada:geheim@db.example.org/rejoinder",
        model_api_key="geheim",
        tools="a.py, b.py",
        port=9000,
    )

    lines = ended.stdout.splitlines()
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert "geheim" not in ended.stdout
    assert {"REJOINDER_PORT=9000", "REJOINDER_TOOLS=a.py,b.py", "REJOINDER_MODEL=demo"} <= {*lines}
    assert all("=" in line and line.startswith("REJOINDER_") for line in lines)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(command: tuple[str, ...]) -> None:
    ended = run(*command, "--help")

    assert (ended.exit_code, ended.stderr) == (0, "")
    assert "Usage: rejoinder" in ended.stdout


@pytest.mark.parametrize(
    "arguments", [("frobnicate",), ("keys",), ("events",), ("events", "nonsense"), ("replay", "x")]
)
def test_wrong_usage_is_said_in_one_line(arguments: tuple[str, ...]) -> None:
    ended = run(*arguments)

    (line,) = ended.stderr.splitlines()
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert "try `rejoinder" in line
    assert line.endswith("--help`")


def test_commands_that_need_no_server_parts_do_not_load_them() -> None:
    code = """
import sys
from api.main import run
run(["config"]), run(["keys", "create", "--tenant", "a", "--user", "b"]), run(["serve", "--help"])
print("loaded", {"litellm", "aiohttp", "psycopg_pool", "eventsourcing"} & set(sys.modules))
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment(), capture_output=True, text=True, check=True
    )

    assert ended.stdout.splitlines()[-1] == "loaded set()"
