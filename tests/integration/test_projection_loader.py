"""A user's own projections from files and modules; each mistake is one line at start that names it."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import psycopg
import pytest

from infra.projection_loader import load_projections
from infra.user_code import LoadError
from projections.catalog import PROJECTIONS
from projections.definition import RESERVED, TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODULE = """
import projections.projection
from projections.display_messages import DISPLAY_MESSAGES
from projections.projection import Projection, Rows

def fold(rows, events): ...

COUNTS = Projection(name="counts", version=1, columns={"n": "int not null"}, fold=fold)
TOTALS = Projection(name="totals", version=3, columns={"n": "int not null", "day": "date"}, key=("day",), fold=fold)
SAME = COUNTS
"""


@pytest.fixture(autouse=True)
def _clean_imports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Start each test in an empty directory, and forget what it imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    importlib.invalidate_caches()
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def own(*entries: str) -> list[str]:
    loaded = load_projections(entries)
    assert loaded[: len(PROJECTIONS)] == PROJECTIONS
    return [projection.name for projection in loaded[len(PROJECTIONS) :]]


def test_a_module_gives_the_projections_in_it_that_are_not_ours(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE)

    assert own() == []
    assert own("mine.py") == own("mine") == own(str(tmp_path / "mine.py")) == ["counts", "totals"]
    assert own("mine.py:TOTALS") == own("mine:TOTALS") == ["totals"]
    assert own("mine:TOTALS", "mine.py:COUNTS") == ["totals", "counts"]


def test_an_exported_list_wins(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE + "\nprojections = [TOTALS]\n")

    assert own("mine.py") == ["totals"]


def test_entry_points_come_after_the_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    (site / "plugin-1.0.dist-info").mkdir(parents=True)
    (site / "plugin.py").write_text(MODULE)
    (site / "plugin-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (site / "plugin-1.0.dist-info" / "entry_points.txt").write_text("[rejoinder.projections]\ncounts = plugin:COUNTS\n")
    monkeypatch.syspath_prepend(site)

    assert own() == ["counts"]
    assert own("site/plugin.py:TOTALS") == ["totals", "counts"]


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("name='conversations'", "there is a table named 'conversations' already, from Rejoinder itself"),
        ("name='leases'", "there is a table named 'leases' already, from Rejoinder itself"),
        ("name='live_turns'", "there is a table named 'live_turns' already, from Rejoinder itself"),
        ("name='migrations'", "there is a table named 'migrations' already, from Rejoinder itself"),
        ("name='Todos'", "a projection named 'Todos': names must be of a-z"),
        ("name='to-dos'", "a projection named 'to-dos': names must be of a-z"),
        ("name='x' * 64", "names must be of a-z.* at most 63 characters"),
        ("name='order'", "a projection named 'order': names must .* be no word of SQL's own"),
        ("name='pg_todos'", "a projection named 'pg_todos'"),
        ("name=None", "a projection named None"),
        ("version=0", "projection 'mine': version 0 must be 1 or more"),
        ("version='1'", "projection 'mine': version '1' must be 1 or more"),
        ("fold=None", "projection 'mine': fold must be a function"),
        ("columns={'user': 'text'}", "projection 'mine': a column named 'user': names must"),
        ("columns={'conversation_id': 'uuid'}", "conversation_id is there anyway"),
        ("columns={'x': 'double precision'}", "projection 'mine': column x: 'double precision' must begin with a type"),
        ("columns={'x': 'text[]'}", "column x: 'text\\[\\]' must begin with a type"),
        ("columns={'x': ''}", "column x: '' must begin with a type"),
        ("key=('m',)", "projection 'mine': key and open_while name 'm', which is no column"),
        ("open_while=('m', frozenset())", "projection 'mine': key and open_while name 'm', which is no column"),
    ],
)
def test_what_cannot_be_a_table_is_refused_with_one_line_that_says_why(
    tmp_path: Path, definition: str, message: str
) -> None:
    (tmp_path / "mine.py").write_text(
        "from projections.projection import Projection\n"
        "given = dict(name='mine', version=1, columns={'n': 'int'}, fold=lambda rows, events: None)\n"
        f"MINE = Projection(**(given | dict({definition})))\n"
    )

    refused(["mine.py"], message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = 1", "it defines no projections"),
        ("projections = [1]", "'int' object: a projection is a Projection"),
        ("def f(:", "SyntaxError: "),
        ("raise OSError('first\\nsecond')", "OSError: first second"),
    ],
)
def test_what_holds_no_projections_is_refused_with_one_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(content)

    refused(["mine.py"], message)
    refused(["nowhere.py"], "there is no file .*nowhere.py")


def test_two_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE)

    refused(["mine.py", "mine"], "there is a table named 'counts' already, from REJOINDER_PROJECTIONS: mine.py")


def refused(entries: list[str], message: str) -> None:
    with pytest.raises(LoadError, match=message) as raised:
        load_projections(entries)
    assert str(raised.value).startswith(f"REJOINDER_PROJECTIONS: {entries[-1]}: ")
    assert "\n" not in str(raised.value)


def test_the_words_of_sql_and_the_types_are_those_of_postgresql(postgres_server: str) -> None:
    with psycopg.connect(postgres_server) as connection:
        words = connection.execute("select word from pg_get_keywords() where catcode in ('R', 'T')").fetchall()
        for kind in TYPES:
            connection.execute(f"select null::{kind}, '{{}}'::{kind}[]")
    assert {word for (word,) in words} <= RESERVED
