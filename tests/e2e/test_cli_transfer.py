"""Conversations go from one installation to another as a file, on the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.postgres import fresh_database
from tests.support.program import Program, run
from tests.support.transferring import exported

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOBODY = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def elsewhere(postgres_server: str, template_database: str) -> Iterator[str]:
    """Another database than the test's."""
    with fresh_database(postgres_server, template_database) as url:
        yield url


def events_in(file: str) -> list[dict[str, Any]]:
    """Return the events of an exported file, positions apart."""
    return [json.loads(line) | {"position": None} for line in file.splitlines()[1:-1]]


def test_d4_a_conversation_moves_to_another_installation_and_open_work_only_when_told_to(
    database_url: str, elsewhere: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.jsonl"
    empty = run("verify", "usage", database_url=elsewhere)
    assert (empty.exit_code, empty.stdout) == (0, "usage: 0 rows, as the log says")
    with Program("serve", "--port", "0", database_url=database_url) as server:
        said = run("chat", "--url", server.url(), typed="hello there\nemail ada@example.org: hi\n").stdout
        conversation = said.splitlines()[0].removeprefix("conversation ")
        written = run("export", conversation, conversation, database_url=database_url)
    count = len(events_in(written.stdout))
    assert written.exit_code == 0
    *_, done = written.stderr.splitlines()  # a slow one says how far it is
    assert done.startswith("export: done in ")
    assert done.endswith(f" s, {count} events")
    path.write_text(written.stdout + "\n", "utf-8")

    checked = run("verify", "display_messages", "--from", str(path), database_url="postgresql://nowhere:1/x")
    assert (checked.exit_code, checked.stdout.splitlines()[0]) == (0, f"log: {count} events, sound")

    refused = run("import", str(path), database_url=elsewhere)
    assert refused.exit_code == 1
    assert refused.stdout.startswith(f"{conversation}: wait for answers to send_email (call_")
    assert refused.stdout.splitlines()[-1].startswith("nothing was imported")

    resumed = run("import", str(path), "--resume", database_url=elsewhere)
    assert (resumed.exit_code, resumed.stdout.splitlines()[-1]) == (
        0,
        f"{count} events of 1 conversations imported; 0 were there already; `serve` brings the read models up to them",
    )
    unbuilt = run("verify", "usage", database_url=elsewhere)
    assert (unbuilt.exit_code, unbuilt.stdout) == (1, "usage: 0 rows, not built yet (`serve` or `rebuild` does that)")
    assert run("rebuild", "usage", database_url=elsewhere).exit_code == 0
    built = run("verify", "usage", database_url=elsewhere)
    assert (built.exit_code, built.stdout) == (0, "usage: 2 rows, as the log says")
    assert events_in(run("export", database_url=elsewhere).stdout) == events_in(written.stdout)


def test_what_cannot_be_exported_or_imported_is_said_in_a_line(database_url: str, tmp_path: Path) -> None:
    for command in (["import", "/dev/stdin"], ["verify", "--from", "/dev/stdin"]):
        piped = run(*command, typed="{}\n", database_url=database_url)
        assert (piped.exit_code, piped.stdout) == (1, "")
        assert piped.stderr == "rejoinder: /dev/stdin is read more than once: save it to a file and name that\n"
    path = tmp_path / "x.jsonl"
    unknown = run("export", NOBODY, database_url=database_url)
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert unknown.stderr == f"rejoinder: there is no conversation {NOBODY}\n"
    path.write_bytes(exported(path, []).read_bytes().splitlines(keepends=True)[0])
    cut = run("import", str(path), database_url=database_url)
    assert (cut.exit_code, cut.stdout) == (1, "")
    assert cut.stderr == f"rejoinder: {path}: line 1: the file is cut off: its last line does not say what it holds\n"
