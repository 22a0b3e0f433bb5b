"""The same log folded by two versions of the code, each in a process of its own."""

from __future__ import annotations

import random
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from api.debugging.against import against
from api.debugging.checkouts import FOLDED_BY, HERE, NoCheckout
from api.debugging.history import History, LoadedLog
from domain.errors import ConversationNotFound
from domain.wire import conversation_of
from tests.support.given import CONVERSATION, asked, called, claimed, got, history, said, started, stored
from tests.support.random_log import random_log, with_summaries

if TYPE_CHECKING:
    from pathlib import Path

CALLED = History(
    LoadedLog(map(stored, history(started(), asked(), claimed(), said(""), called(), got()))), CONVERSATION, page=2
)


def in_a_repository() -> bool:
    git = shutil.which("git")
    return (
        git is not None and not subprocess.run([git, "-C", HERE, "rev-parse", "HEAD"], capture_output=True).returncode
    )


def changed_copy(directory: Path, *changes: tuple[str, str, str]) -> str:
    """Copy this code with texts of its files replaced."""
    for package in FOLDED_BY:
        shutil.copytree(HERE / package, directory / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in changes:
        file = directory / name
        assert old in file.read_text("utf-8")
        file.write_text(file.read_text("utf-8").replace(old, new), "utf-8")
    return str(directory)


async def test_the_same_code_folds_a_log_alike(tmp_path: Path) -> None:
    log = random_log(random.Random(5), steps=80)
    conversation_id = conversation_of(log[0].stream)
    assert conversation_id is not None
    real = History(LoadedLog(with_summaries(log, random.Random(5))), conversation_id, page=7)

    found = await against(real, changed_copy(tmp_path))

    assert not found.differs
    assert (found.events, found.only_here, found.only_there) == (len(log), [], [])


async def test_the_first_differing_event_and_all_differing_rows_are_named(tmp_path: Path) -> None:
    other = changed_copy(
        tmp_path,
        ("domain/evolve.py", "conversation.calls.pop(event.tool_call_id, None)", "pass"),
        ("projections/display_messages.py", '"ok": "completed"', '"ok": "fine"'),
    )

    found = await against(CALLED, other)

    first = found.first_difference
    assert first is not None
    assert (first.seq, first.type) == (6, "tool_result")
    assert [(one["op"], one["path"]) for one in first.patch] == [("add", "/calls/c1")]
    assert (first.owes_here, first.owes_there) == ([{"kind": "call_model"}], [{"kind": "run_tools", "calls": ["c1"]}])
    shown = [(row.key, row.column, row.here, row.there) for row in found.rows if row.projection == "display_messages"]
    assert sorted(shown, key=str) == [
        ({"seq": 5, "sequence": 0}, "status", "completed", "fine"),
        ({"seq": 6, "sequence": 0}, "status", "completed", "fine"),
    ]
    assert found.differs


async def test_what_only_one_version_knows_is_named_and_no_difference(tmp_path: Path) -> None:
    other = changed_copy(
        tmp_path,
        ("domain/snapshots.py", "    copying: bool\n", "    copying: bool\n    mood: str = 'fine'\n"),
        ("domain/aggregate.py", "self.spent_usd = 0.0", "self.spent_usd, self.mood = 0.0, 'fine'"),
        ("projections/catalog.py", "SUMMARIES, TOOL_CALLS", "TOOL_CALLS"),
    )

    found = await against(CALLED, other)

    assert not found.differs
    assert (found.only_here, found.only_there) == (["summaries"], ["state.mood"])


async def test_a_version_that_cannot_take_an_event_differs_there(tmp_path: Path) -> None:
    other = changed_copy(
        tmp_path,
        ("domain/events.py", 'wire_type = "tool_call"', 'wire_type = "tool_wish"'),
        ("projections/usage.py", "def fold(", "def fold(*_): raise ValueError('no usage today')\n\n\ndef _fold("),
    )

    found = await against(CALLED, other)

    first = found.first_difference
    assert first is not None
    assert (first.seq, first.error_here) == (5, None)
    assert str(first.error_there).startswith("UnknownEventType: tool_call")
    assert [row.there for row in found.rows if row.projection == "usage"] == [{"error": "ValueError: no usage today"}]
    assert found.events == 6


@pytest.mark.skipif(not in_a_repository(), reason="this code is in no git repository")
async def test_a_revision_is_unpacked_and_the_repository_stays_as_it_is() -> None:
    found = await against(CALLED, "HEAD")

    assert (found.version, found.events) == ("HEAD", 6)


@pytest.mark.skipif(not in_a_repository(), reason="this code is in no git repository")
@pytest.mark.parametrize("version", ["no-such-revision", "--help"])
async def test_what_is_no_version_is_said_in_a_line(version: str) -> None:
    with pytest.raises(NoCheckout, match="is no directory, and no revision of"):
        await against(CALLED, version)


async def test_a_directory_without_the_code_is_said_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(NoCheckout, match="is no checkout of Rejoinder: it has no package domain"):
        await against(CALLED, str(tmp_path))


async def test_a_version_that_cannot_fold_says_why(tmp_path: Path) -> None:
    other = changed_copy(tmp_path)
    (tmp_path / "domain/owes.py").unlink()

    with pytest.raises(NoCheckout, match=r"cannot fold the log: ModuleNotFoundError: No module named 'domain.owes'"):
        await against(CALLED, other)


async def test_without_a_log_there_is_nothing_to_fold() -> None:
    with pytest.raises(ConversationNotFound):
        await against(History(LoadedLog([]), CONVERSATION), "HEAD")
