"""Text becomes storable at one place."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.parts import Part, fitted, text_of, text_part
from domain.text import clean, truncated

MOMENT = datetime(2026, 11, 21, tzinfo=UTC)
ID = UUID(int=7)


@pytest.mark.parametrize(
    ("value", "cleaned"),
    [
        ("plain", "plain"),
        ("snow \u2603 \U0001f600", "snow \u2603 \U0001f600"),
        ("a\x00b\ud800c\udfff", "a\ufffdb\ufffdc\ufffd"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (-float("inf"), "-Infinity"),
        (2**63 - 1, 2**63 - 1),
        (2**63, "9223372036854775808"),
        (-(2**64), "-18446744073709551616"),
        (1.5, 1.5),
        (True, True),
        (None, None),
        (MOMENT, MOMENT),
        (ID, ID),
        ({"a\x00": [1, ("b\x00",)], 2: None}, {"a\ufffd": [1, ["b\ufffd"]], "2": None}),
        (Path("a\x00"), "a\ufffd"),
        (Part(type="text", text="\x00", data=None), {"type": "text", "text": "\ufffd"}),
        (Part(type="x", data={"a": None}), {"type": "x", "data": {"a": None}}),
    ],
)
def test_l11_what_no_store_takes_is_replaced(value: Any, cleaned: Any) -> None:
    assert clean(value) == cleaned


def test_l11_numbers_too_long_to_be_printed_are_texts() -> None:
    assert clean(10**5_000).startswith("0x")


def test_l11_cleaning_twice_changes_nothing() -> None:
    once = clean({"a": ["\x00", float("nan"), 2**80]})
    assert clean(once) == once


@settings(max_examples=100)
@given(text=st.text(st.characters(codec=None), max_size=300), room=st.integers(64, 400))
def test_a_truncated_text_fits_and_keeps_its_beginning(text: str, room: int) -> None:
    cut = truncated(text, room)
    assert len(json.dumps(cut, ensure_ascii=False).encode()) <= room
    kept, _, stub = cut.rpartition("\n[truncated: ")
    assert cut == clean(text) or (clean(text).startswith(kept) and stub.endswith("bytes in all]"))


def test_a_truncated_text_keeps_as_much_as_fits() -> None:
    assert len(truncated("x" * 1_000_000, 100_000)) > 99_900


def test_parts_are_kept_as_long_as_there_is_room() -> None:
    parts = [text_part("a" * 500), text_part("b" * 5_000), text_part("c")]
    assert fitted(parts, 10_000) == parts
    assert [part.text and part.text[0] for part in fitted(parts, 2_000)] == ["a", "b", "["]
    assert fitted(parts, 2_000)[-1] == text_part("[1 more parts left out]")


def test_a_part_without_text_is_left_out_whole() -> None:
    assert text_of(fitted([Part(type="file", data="x" * 5_000)], 1_000)).startswith("[file left out: 5,0")
