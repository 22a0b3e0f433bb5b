"""Tools from files, modules and entry points, as a real interpreter imports them."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import pytest

from infra.demo_tools import demo_tools
from infra.tool_loader import load_tools
from infra.user_code import LoadError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODULE = '''
"""A user's tools."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass
from json import dumps

from domain.tools import ToolContext, tool


@dataclass
class Order:
    item: str


def search(query: str) -> str:
    """Search."""
    return query


find = search


@tool(gate="always")
async def _buy(ctx: ToolContext, order: Order) -> str:
    """Buy."""
    return order.item


def _helper(x):
    return x
'''


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


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    importlib.invalidate_caches()
    return path


def test_a_file_gives_its_own_public_functions_and_tools_in_order(tmp_path: Path) -> None:
    _write(tmp_path / "sub" / "shop.py", MODULE)

    for entry in ("sub/shop.py", str(tmp_path / "sub" / "shop.py")):
        tools = load_tools([entry])
        assert tools.names == ("search", "_buy")
        assert [made.gate for made in tools] == ["never", "always"]


def test_an_exported_list_wins(tmp_path: Path) -> None:
    _write(tmp_path / "shop.py", MODULE + "\ntools = [search]\n")

    assert load_tools(["shop.py"]).names == ("search",)


def test_one_name_of_a_file_and_of_a_module(tmp_path: Path) -> None:
    _write(tmp_path / "shop.py", MODULE + "\nall_of_them = [search, _buy]\n")

    assert load_tools(["shop.py:_buy"]).names == ("_buy",)
    assert load_tools(["shop:search", "shop.py:_buy"]).names == ("search", "_buy")
    assert load_tools(["shop:all_of_them"]).names == ("search", "_buy")
    assert load_tools(["shop"]).names == ("search", "_buy")


def test_a_file_is_imported_once_and_can_import_its_neighbours(tmp_path: Path) -> None:
    _write(tmp_path / "deep" / "neighbour.py", "N = 1\n")
    _write(
        tmp_path / "deep" / "a.py",
        "import os\nfrom neighbour import N\nos.mkdir('imported')\n"
        "def f(x: int = N) -> int: ...\ndef g() -> int: ...\n",
    )

    assert load_tools(["deep/a.py:g", "deep/a.py:f"]).names == ("g", "f")


def test_our_own_packages_are_found_before_the_working_directory(tmp_path: Path) -> None:
    _write(tmp_path / "domain" / "__init__.py", "raise RuntimeError")
    _write(tmp_path / "mine.py", "def f() -> int: ...")

    assert load_tools(["mine:f"]).names == ("f",)
    assert sys.path[-1] == str(tmp_path)


def test_without_entries_there_are_the_default_tools(tmp_path: Path) -> None:
    assert load_tools([], demo_tools(tmp_path)).names == ("current_time", "send_email", "ask_user", "get_location")
    assert load_tools([]).names == ()


def test_entry_points_come_after_the_entries_and_replace_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    _write(site / "plugin.py", MODULE)
    _write(site / "plugin-1.0.dist-info" / "METADATA", "Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    _write(site / "plugin-1.0.dist-info" / "entry_points.txt", "[rejoinder.tools]\nshop = plugin:search\n")
    monkeypatch.syspath_prepend(site)

    assert load_tools([], demo_tools(tmp_path)).names == ("search",)
    assert load_tools(["site/plugin.py:_buy"]).names == ("_buy", "search")
    with pytest.raises(LoadError, match=r"^entry point shop = plugin:search: there is a tool named 'search'"):
        load_tools(["site/plugin.py"])


@pytest.mark.parametrize(
    ("entry", "content", "message"),
    [
        ("nowhere.py", None, "there is no file .*nowhere.py"),
        ("nowhere:f", None, "ModuleNotFoundError: No module named 'nowhere'"),
        (":f", None, "ValueError: Empty module name"),
        ("a.py:absent", "def f() -> int: ...", "a.py has no 'absent'"),
        ("a.py", "x = 1", "it defines no tools"),
        ("a.py", "tools = []", "it defines no tools"),
        ("a.py:x", "x = 1", "'int' object: a tool is a function"),
        ("a.py", "tools = [1]", "'int' object: a tool is a function"),
        ("a.py", "def f(x): ...", "tool 'f': argument 'x' has no annotation"),
        ("a.py", "def f(:", "SyntaxError: "),
        ("a.py", "raise OSError('first line\\nsecond line')", "OSError: first line second line"),
        ("a.py", "raise SystemExit(3)", "SystemExit: 3"),
        ("a.py", "import nothing_like_it", "ModuleNotFoundError: No module named 'nothing_like_it'"),
        (
            "a.py",
            "from domain.tools import tool\n@tool(executor='human', gate='always')\ndef f(x: str) -> str: ...",
            "tool 'f': a human tool cannot be gated",
        ),
        (
            "a.py",
            "from domain.tools import tool\ndef f() -> int: ...\n@tool(name='f')\ndef g() -> int: ...",
            "there is a tool named 'f' already, from REJOINDER_TOOLS: a.py",
        ),
    ],
)
def test_what_cannot_be_loaded_is_refused_with_one_line_that_names_the_entry(
    tmp_path: Path, entry: str, content: str | None, message: str
) -> None:
    if content is not None:
        _write(tmp_path / "a.py", content)

    with pytest.raises(LoadError, match=message) as raised:
        load_tools([entry])

    assert str(raised.value).startswith(f"REJOINDER_TOOLS: {entry}: ")
    assert "\n" not in str(raised.value)
