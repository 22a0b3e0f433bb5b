"""Hooks from files, modules and values in them, as a real interpreter imports them."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import pytest

from infra.hook_loader import load_hooks
from infra.user_code import LoadError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODULE = """
from domain import hooks
from domain.hooks import before_model, after_model

@before_model
def first(ctx): ...

@after_model(name="second")
def named_otherwise(ctx, said): ...

again = first

def no_hook(ctx): ...
"""


@pytest.fixture(autouse=True)
def _clean_imports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    (tmp_path / "my_own_hooks.py").write_text(MODULE)
    importlib.invalidate_caches()
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_file_gives_the_hooks_that_it_defines_in_order() -> None:
    assert load_hooks(["my_own_hooks.py"]).names == ("first", "second")
    assert load_hooks(["my_own_hooks.py:named_otherwise", "my_own_hooks:first"]).names == ("second", "first")


def test_a_list_says_which(tmp_path: Path) -> None:
    (tmp_path / "my_own_hooks.py").write_text(MODULE + "\nhooks = [named_otherwise]\n")
    assert load_hooks(["my_own_hooks.py"]).names == ("second",)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["my_own_hooks.py:no_hook"], "is no hook: mark it"),
        (["my_own_hooks.py", "my_own_hooks.py:first"], "there is a hook named 'first' already"),
        (["absent.py"], "there is no file"),
    ],
)
def test_what_cannot_be_loaded_is_named(entries: list[str], message: str) -> None:
    with pytest.raises(LoadError, match=message):
        load_hooks(entries)
