"""`trace`, `what-if` and `replay --against` from the command line, of an exported file: no server, no database."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
import typer

from api.cli.replay import replay
from api.cli.trace import trace
from api.cli.what_if import what_if
from api.transfer.writer import ExportWriter
from tests.support.given import ADA, APPROVAL, approve, message, ran, reply, wants
from tests.support.happening import Happening
from tests.support.program import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.program import Ended


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A conversation in which a person lets a second call run after the result of a first one."""
    happening = (
        Happening()
        .then(1, lambda c, now: c.send_message(message("m1"), now=now, actor=ADA))
        .then(0.02, lambda c, now: c.start_turn(now=now))
        .then(2, lambda c, now: c.record_reply(1, 1, reply(wants("c1")), now=now))
        .then(0.5, lambda c, now: c.record_result(1, 1, ran("c1", text="\x1b[31mred"), now=now))
        .then(1, lambda c, now: c.record_reply(1, 1, reply(wants("c2", gated=True, inquiry=APPROVAL), step=2), now=now))
        .then(30, lambda c, now: c.resolve(approve("c2"), now=now, actor=ADA))
        .then(0.25, lambda c, now: c.record_result(1, 1, ran("c2"), now=now))
    )
    path = tmp_path_factory.mktemp("exported") / "bug.jsonl"
    with path.open("wb") as out:
        writer = ExportWriter(out, UUID(int=7))
        for event in happening.log:
            writer.write(event.stored)
        writer.finish()
    return path


def runs(*commands: tuple[str, ...]) -> list[Ended]:
    """Run commands side by side."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda command: run(*command), commands))


def test_a_file_is_traced(file: Path) -> None:
    drawn, as_json, absent = runs(
        ("trace", str(file), "6"), ("trace", str(file), "6", "--json"), ("trace", str(file), "99")
    )

    assert drawn.stdout.splitlines() == [
        "* 2 user_msg (12:00:01) And?",
        "└── * 3 turn_started (wake 20 ms) turn 1",
        "    ├── * 4 assistant_msg (model 2,000 ms) Hi",
        "    │   └── * 5 tool_call tool(a=1)",
        "    │       └── * 6 tool_result (tool 500 ms) ok: \ufffd[31mred  <- this event",
        "    └── * 7 assistant_msg (model 1,000 ms) Hi",
        "        └── * 8 tool_call tool(a=1)",
        "            └── * 9 suspension approval: May this run?",
        "                └── * 10 resolution (human 30.0 s) approved by ada",
        "                    └── * 11 tool_result (tool 250 ms) ok: done",
        "* the slowest path: 33.8 s = wake 20 ms · model 3,000 ms · tool 750 ms · human 30.0 s",
    ]
    assert json.loads(as_json.stdout)["times"] == {"wake": 20, "model": 3000, "tool": 750, "human": 30_000}
    assert (absent.exit_code, absent.stdout) == (1, "")
    assert absent.stderr == f"rejoinder: {file} has no event 99; `rejoinder replay` lists them\n"


def test_what_would_be_is_told_of_a_file(file: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.jsonl"
    line = {"type": "conversation_ended", "data": {}, "metadata": {"actor": {"kind": "user", "id": "ben"}}}
    more.write_text(json.dumps(line) + "\n\n" + json.dumps(line) + "\n")

    dropped, replaced, appended = runs(
        ("what-if", str(file), "--drop", "6"),
        ("what-if", str(file), "--replace", '6={"content": [{"type": "text", "text": "fine"}]}', "--at", "6"),
        ("what-if", str(file), "--append", json.dumps(line), "--append", str(more), "--json"),
    )

    assert dropped.stdout.splitlines()[:4] == [
        "really:  after event 11 the log owes call_model",
        "what if: after event 5 the log would owe run_tools c1",
        "can no longer follow:",
        "    7  assistant_msg         no result yet of c1",
    ]
    assert "not sent before 1 call has a result):" in dropped.stdout
    assert "  tool: fine" in replaced.stdout.splitlines()
    doubts = json.loads(appended.stdout)["impossible"]
    assert [(doubt["seq"], doubt["reason"]) for doubt in doubts] == [
        (seq, "turn 1 has not ended") for seq in (12, 13, 14)
    ]


def test_what_does_not_fit_the_log_is_said_in_a_line(file: Path) -> None:
    asked = {
        ("what-if", "--drop", "2", "--drop", "99"): (1, "--drop 99: is beyond the newest event, 11"),
        ("what-if", "--drop", "2", "--at", "99"): (1, "--at: is beyond the newest event, 11"),
        ("what-if", "--replace", '6={"status": "s3cret"}'): (1, "--replace 6.status: Input should be 'ok'"),
        ("what-if", "--append", '{"type": "s3cret"}'): (1, "--append 1, type: is none of conversation_started,"),
        ("what-if", "--drop", "0"): (2, "--drop 0: Input should be greater than or equal to 1"),
        ("replay", "--at", "99"): (1, "that event is beyond the newest event, 11"),
        ("diff", "3", "99"): (1, "that event is beyond the newest event, 11"),
        ("replay", "--against", "no-such-revision"): (2, "no-such-revision is no directory, and no revision of"),
    }

    ended = runs(*((command, str(file), *more) for command, *more in asked))

    for one, (exit_code, said) in zip(ended, asked.values(), strict=True):
        assert (one.exit_code, one.stdout) == (exit_code, "")
        assert one.stderr.startswith(f"rejoinder: {said}"), one.stderr
        assert len(one.stderr.splitlines()) == 1
        assert "s3cret" not in one.stderr


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (partial(what_if, "x", at=1), "no change given"),
        (partial(what_if, "x", replace=["6"]), "write it as SEQ=JSON"),
        (partial(what_if, "x", replace=["six={}"]), "write it as SEQ=JSON"),
        (partial(what_if, "x", replace=["6={"]), "it is not JSON"),
        (partial(what_if, "x", append=["{"]), "it is not JSON"),
        (partial(what_if, "x", append=["nowhere.jsonl"]), "it is no JSON, and no file that can be read"),
        (partial(trace, "x", "first"), "an event is named by its id or its number"),
        (partial(replay, "x", at=1, against="."), "not together with --at"),
    ],
)
def test_what_is_asked_wrongly_is_wrong_usage(ask: Callable[[], object], said: str) -> None:
    with pytest.raises(typer.BadParameter, match=said):
        ask()


def test_two_versions_of_the_code_fold_a_file(file: Path) -> None:
    (same,) = runs(("replay", str(file), "--against", "."))

    assert (same.exit_code, same.stderr) == (0, "")
    assert same.stdout == "11 events were folded by this code and by ., and nothing differs"
