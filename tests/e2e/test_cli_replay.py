"""`replay` and `diff` from the command line: of a running system, of an exported file, and on a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.program import Program, data_directory, fetched, run
from tests.support.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def exported() -> Iterator[tuple[Path, str]]:
    """A conversation of one turn, looked at beside its server, and as a file."""
    with data_directory() as home:
        with Program("serve", "--port", "0", data_dir=home) as server:
            url = server.url()
            said = run("chat", "--url", url, typed="hello there\n").stdout
            conversation = said.splitlines()[0].removeprefix("conversation ")
            path = f"{url}/v1/conversations/{conversation}"
            steps, then = fetched(f"{path}/steps"), fetched(f"{path}/state?at=3")
            beside = run("replay", conversation, "--json", data_dir=home)
            moment = run("replay", conversation, "--at", "3", "--json", data_dir=home)
            unknown = run("replay", conversation[:-4] + "0000", data_dir=home)
            beyond = run("replay", conversation, "--at", "99", data_dir=home)
            whole = run("export", conversation, data_dir=home)
        assert [json.loads(line) for line in beside.stdout.splitlines()] == steps["items"]
        assert json.loads(moment.stdout) == then
        assert (unknown.exit_code, unknown.stdout) == (1, "")
        assert unknown.stderr == f"rejoinder: there is no conversation {conversation[:-4]}0000\n"
        assert (beyond.exit_code, beyond.stderr) == (1, "rejoinder: that event is beyond the newest event, 5\n")
        file = home / "bug.jsonl"
        file.write_text(whole.stdout + "\n")
        yield file, beside.stdout


def test_a_file_is_replayed_without_a_server_as_the_system_that_it_comes_from(exported: tuple[Path, str]) -> None:
    file, beside = exported

    listed = run("replay", str(file), "--json")
    told = run("replay", str(file)).stdout.splitlines()
    then = run("replay", str(file), "--at", "2").stdout
    changed = run("diff", str(file), "0", "2")
    as_json = json.loads(run("diff", str(file), "0", "2", "--json").stdout)

    assert listed.stdout == beside
    assert told[0].split(maxsplit=3)[-1] == "conversation_started  local/local"
    assert [line.strip() for line in told if line.strip().startswith("owes: ")][2:] == [
        "owes: call_model",
        "owes: (the next event was appended with this one)",
        "owes: nothing",
    ]
    assert "owes: start_turn" in then
    assert "2  user [pending]: hello there" in then
    assert "~ /owner local" in changed.stdout.splitlines()
    assert (as_json["from_seq"], as_json["to_seq"]) == (0, 2)
    assert {"op": "replace", "path": "/owner", "value": "local"} in as_json["patch"]


def test_what_is_no_conversation_is_said_in_a_line(exported: tuple[Path, str], tmp_path: Path) -> None:
    file, _ = exported
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))

    for source, exit_code, says in (
        (str(cut), 1, "line 6: the file is cut off"),
        (f"{file}#{'0' * 32}", 1, "does not hold conversation"),
        (f"{file}#nobody", 2, "nobody is not the id of a conversation"),
        ("nowhere.jsonl", 2, "neither the id of a conversation nor a file"),
    ):
        ended = run("replay", source)
        (line,) = ended.stderr.splitlines()
        assert (ended.exit_code, ended.stdout) == (exit_code, "")
        assert says in line
    assert "needs a terminal" in run("replay", str(file), "--step").stderr


def test_on_a_terminal_one_steps_through_it(exported: tuple[Path, str]) -> None:
    file, _ = exported
    with on_terminal("replay", str(file)) as terminal:
        terminal.wait_for("event 1 of 5", "local/local", "quit")
        terminal.type("j")
        terminal.wait_for("event 2 of 5", "start_turn", "hello there")
        terminal.type("q")
        assert terminal.ended() == 0
