"""The keys file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from domain.scope import Scope
from infra.keys import KeysError, create_key, load_keys

if TYPE_CHECKING:
    from pathlib import Path

HASH = "0" * 64


def _file(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "keys.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_created_key_opens_its_scope_once_its_entry_is_in_the_file(tmp_path: Path) -> None:
    key, entry = create_key("acme", "ada", ["approver"])

    keys = load_keys(_file(tmp_path, [entry.model_dump(mode="json")]))

    assert keys.scope_of(key) == Scope("acme", "ada", frozenset({"approver"}))
    assert keys.scope_of(key + "x") is None
    assert keys.scope_of("\ud800") is None
    assert key not in entry.model_dump_json()


def test_two_created_keys_differ() -> None:
    assert create_key("acme", "ada")[0] != create_key("acme", "ada")[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[{", "Invalid JSON"),
        ("{}", "valid array"),
        ([{"key_sha256": "secret-key", "tenant": "acme", "user": "ada"}], "entry 1 key_sha256"),
        ([{"key_sha256": HASH, "tenant": "acme", "user": ""}], "entry 1 user"),
        ([{"key_sha256": HASH, "tenant": "acme", "user": "ada", "roles": ["root"]}], "entry 1 roles"),
        ([{"key_sha256": HASH, "tenant": "acme", "user": "ada", "key": "secret-key"}], "entry 1 key"),
        ([{"key_sha256": HASH, "tenant": "acme", "user": user} for user in ("ada", "ben")], "two entries"),
    ],
)
def test_a_wrong_keys_file_is_refused_naming_the_entry_but_no_value(
    tmp_path: Path, content: object, message: str
) -> None:
    with pytest.raises(KeysError, match=message) as raised:
        load_keys(_file(tmp_path, content))

    assert "secret-key" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_keys_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match="nowhere"):
        load_keys(tmp_path / "nowhere.json")


def test_a_key_for_an_unknown_role_or_an_empty_tenant_is_refused() -> None:
    with pytest.raises(KeysError, match="roles"):
        create_key("acme", "ada", ["root"])
    with pytest.raises(KeysError, match="tenant"):
        create_key("", "ada")
