"""An exported file gives back what was written, letter by letter, and says where it is not what was written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from api.transfer.lines import Header, parse
from api.transfer.reader import ExportError, read_events, read_total
from tests.support.transferring import LOG_ID, exported, some_logs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("seed", range(5))
def test_d4_what_is_read_is_what_was_written(seed: int, tmp_path: Path) -> None:
    log = some_logs(seed)
    path = exported(tmp_path / "x.jsonl", log)
    assert list(read_events(path)) == log
    header = parse(path.read_bytes().splitlines()[0])
    assert isinstance(header, Header)
    assert (header.log_id, read_total(path)) == (LOG_ID, len(log))


@pytest.mark.parametrize(
    "text", ['{ "a":\n1 }', '{"a":1,"a":2}', '{"a":"\\u00e9\\ud800"}', '{"a":1e2,"b":1E400}', "null", '{"a":1.0}']
)
def test_d4_json_of_any_spelling_comes_back_as_it_was_spelt(text: str, tmp_path: Path) -> None:
    log = [replace(event, data=text, metadata=text) for event in some_logs(1)[:1]]
    path = exported(tmp_path / "x.jsonl", log)
    assert list(read_events(path)) == log
    assert len(path.read_bytes().splitlines()) == 3


def test_a_file_that_was_cut_off_anywhere_is_noticed(tmp_path: Path) -> None:
    path = exported(tmp_path / "x.jsonl", some_logs(2, conversations=1, steps=5))
    whole = path.read_bytes()
    for size in range(0, len(whole) - 1, 97):
        path.write_bytes(whole[:size])
        with pytest.raises(ExportError, match=r"^line \d+: "):
            list(read_events(path))
        with pytest.raises(ExportError, match="cut off" if b"\n" in whole[:size] else "^line 1: "):
            read_total(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "line 1: the file is empty"),
        (b'{"a":1}\n{"b":2}\n', "line 1: it is no line of an exported file"),
        (b"\x7fELF", "line 1: it is not JSON in UTF-8"),
    ],
)
def test_a_file_that_was_never_exported_is_not_called_cut_off(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    for read in (read_total, lambda path: list(read_events(path))):
        with pytest.raises(ExportError, match=f"^{said}$"):
            read(path)


def test_a_text_that_was_changed_is_noticed_unless_the_hash_was_taken_out(tmp_path: Path) -> None:
    path = exported(tmp_path / "x.jsonl", some_logs(3))
    lines = path.read_bytes().replace(b'"acme"', b'"emca"').splitlines(keepends=True)
    path.write_bytes(b"".join(lines))
    with pytest.raises(ExportError, match=f"^line {len(lines)}: the file was changed"):
        list(read_events(path))
    end = json.loads(lines[-1])
    del end["end"]["sha256"]
    path.write_bytes(b"".join([*lines[:-1], json.dumps(end).encode()]))
    assert len(list(read_events(path))) == len(lines) - 2


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (3, 4, "goes on with event"),  # line 3 is missing: a gap
        (4, 3, "goes on with event"),
        (3, 3, "goes on with event"),
    ],
)
def test_lines_that_are_missing_swapped_or_there_twice_are_named(
    first: int, second: int, said: str, tmp_path: Path
) -> None:
    path = exported(tmp_path / "x.jsonl", [e for e in some_logs(4, conversations=1) if e.stream[0] == "c"])
    lines = path.read_bytes().splitlines(keepends=True)
    before, after = lines[:2], lines[4:]
    wrong = {(3, 4): [lines[3]], (4, 3): [lines[3], lines[2]], (3, 3): [lines[2], lines[2]]}[first, second]
    path.write_bytes(b"".join([*before, *wrong, *after]))
    with pytest.raises(ExportError, match=rf"^line [34]: .*{said}"):
        list(read_events(path))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"rejoinder":"export","format":2}', "format 2"),
        (b"[]", "no line"),
        (b"7", "no line"),
        (b"\xff", "not JSON"),
        (b'{"a":NaN}', "not JSON"),
        (b"[" * 100_000, "nests too deep|not JSON"),
        (b'{"stream":"other-7","seq":1,"position":1,"event_id":"7","type":"t","data":{},"metadata":{}}', "."),
    ],
)
def test_a_line_that_is_none_is_named(line: bytes, said: str, tmp_path: Path) -> None:
    path = exported(tmp_path / "x.jsonl", some_logs(5, conversations=1))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], line + b"\n", *lines[2:]]))
    with pytest.raises(ExportError, match=rf"^line 3: .*({said})"):
        list(read_events(path))


def test_a_conversation_stands_together_and_begins_with_its_first_event(tmp_path: Path) -> None:
    a, b = ([e for e in some_logs(seed, conversations=1)] for seed in (6, 7))
    with pytest.raises(ExportError, match="stands together"):
        list(read_events(exported(tmp_path / "x.jsonl", [a[0], b[0], *a[1:]])))
    with pytest.raises(ExportError, match="position 3 does not come after 3"):
        list(read_events(exported(tmp_path / "x.jsonl", [replace(event, position=3) for event in a])))
    beside = [event for event in a if event.stream.startswith("summary-")]
    with pytest.raises(ExportError, match="begins with a summary"):
        list(read_events(exported(tmp_path / "x.jsonl", beside)))
