"""An exported file is checked by itself: sound logs pass, and each fault is said with its line."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from api.transfer.checking import check
from api.transfer.examining import examine
from api.transfer.reader import ExportError
from infra.memory_event_store import MemoryEventStore
from projections.catalog import PROJECTIONS
from projections.projection import Projection, Rows
from tests.support.given import (
    GATED_CALL,
    OPEN_TURN,
    asked,
    called,
    claimed,
    closed,
    finished,
    got,
    history,
    resolved,
    resumed,
    said,
    started,
    stored,
    suspended,
)
from tests.support.random_log import random_log
from tests.support.transferring import exported

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from domain.event_store import StoredEvent
    from projections.event import Event
    from tests.support.given import Fact


def checked(log: Sequence[StoredEvent], folder: Path, *projections: Projection) -> list[str]:
    """Check a file of a log; return all faults."""
    found = check(exported(folder / "x.jsonl", log), projections or PROJECTIONS, lambda done: None)
    assert found[0].looked_at == len(log)
    return [fault for findings in found for fault in findings.shown]


async def refused(folder: Path) -> str:
    """Import the file that was checked into an empty store; return why it is refused."""
    with pytest.raises(ExportError) as error:
        await examine(folder / "x.jsonl", MemoryEventStore(), lambda done: None)
    return str(error.value)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_to_a_conversation_its_log_is_sound(seed: int, tmp_path: Path) -> None:
    assert checked(random_log(random.Random(seed)), tmp_path) == []


@pytest.mark.parametrize(
    ("facts", "fault"),
    [
        ((started(), started()), "line 3: event 2, conversation_started: a conversation starts with its first event"),
        ((*OPEN_TURN, asked("m2"), claimed()), "turn 1 had not ended"),
        ((started(), asked(), claimed(turn=3)), "turn 3 comes after turn 0"),
        ((started(), asked(), claimed(answers=["m1", "m9"])), "it answers what does not wait: m9"),
        ((started(), asked(), claimed(settings_seq=2)), "the settings in force are those of event 1, not 2"),
        ((*OPEN_TURN, resumed(), said(turn=2)), "turn 2 is not open"),
        ((started(), asked(), said(turn=1)), "turn 1 is not open"),
        ((started(), asked(), got()), "no call c1 is open"),
        ((*OPEN_TURN, said(step=3)), "step 3 comes after step 0"),
        ((*OPEN_TURN, said(context_seq=9)), "it has seen event 9, which was not there yet"),
        ((*OPEN_TURN, said(""), called(), said()), "the model was called while calls had no result: c1"),
        ((*OPEN_TURN, said(""), called(), got(), got()), "no call c1 is open"),
        ((*OPEN_TURN, said(""), called(), got(), called()), "the id c1 had a call before"),
        ((*OPEN_TURN, said(""), called(), closed()), "calls have no result: c1"),
        ((*OPEN_TURN, said(""), suspended()), "no call c1 is open"),
        ((*GATED_CALL, resolved(), resolved()), "no question about c1 is open"),
        ((*OPEN_TURN, finished()), "turn 1 had not ended"),
        ((started(), finished(), asked()), "the conversation had ended"),
        ((started(forked_from="0192f1a2-0000-7000-8000-00000000000f"), asked()), "the fork was not whole"),
    ],
)
async def test_t1_t11_what_no_rule_allows_is_named_and_not_imported(
    facts: Sequence[Fact], fault: str, tmp_path: Path
) -> None:
    faults = checked([stored(event) for event in history(*facts)], tmp_path)
    assert any(fault in one for one in faults)
    assert await refused(tmp_path) == faults[0]


@pytest.mark.parametrize(
    ("was", "then", "fault"),
    [
        (
            '"schema_version":1',
            '"schema_version":77',
            "the user_msg cannot be read: this version knows its form 1, not 77",
        ),
        ('"event_id":"', '"event_id":"7', "event 2, user_msg: its event_id is "),
        (
            '"occurred_at":"2',
            '"occurred_at":"x',
            "the user_msg cannot be read: Invalid isoformat string: ",
        ),
    ],
)
async def test_metadata_that_do_not_fit_are_named_and_not_imported(
    was: str, then: str, fault: str, tmp_path: Path
) -> None:
    log = [stored(event) for event in history(*OPEN_TURN, said(), closed())]
    log[1] = replace(log[1], metadata=log[1].metadata.replace(was, then))
    faults = checked(log, tmp_path)
    assert faults[0].startswith(f"line 3: {fault}")
    assert await refused(tmp_path) == faults[0]


async def test_an_id_that_is_there_twice_is_named_and_not_imported(tmp_path: Path) -> None:
    log = [stored(event) for event in history(*OPEN_TURN, said(), closed())]
    twice, other = log[1].event_id, log[3]
    metadata = other.metadata.replace(str(other.event_id), str(twice))
    log[3] = replace(other, event_id=twice, metadata=metadata)
    assert checked(log, tmp_path) == [f"line 5: event 4, assistant_msg: an event before it has its id {twice}"]
    assert await refused(tmp_path) == checked(log, tmp_path)[0]


def test_what_this_version_cannot_read_is_named_and_the_rest_is_checked(tmp_path: Path) -> None:
    log = [stored(event) for event in history(*OPEN_TURN, said(), closed())]
    log[1:1] = [replace(log[0], type="note_left", seq=2), replace(log[0], data='{"tenant":7}', seq=3)]
    log = [replace(event, seq=n, position=n) for n, event in enumerate(log, 1)]
    assert checked(log, tmp_path)[:2] == [
        "line 3: this version does not know the event note_left: use that which exported it",
        "line 4: the conversation_started cannot be read: tenant: Input should be a valid string",
    ]


def test_r4_a_read_model_that_depends_on_how_the_log_is_cut_or_cannot_take_it_is_named(tmp_path: Path) -> None:
    def fold_pieces(rows: Rows, events: Sequence[Event]) -> None:
        rows.put({"n": (rows.get() or {"n": 0})["n"] + 1})

    def fold_replies(rows: Rows, events: Sequence[Event]) -> None:
        for event in events:
            if event.type == "assistant_msg":
                raise KeyError(event.type)

    columns: dict[Any, Any] = {"n": "int not null"}
    pieces = Projection(name="pieces", version=1, columns=columns, fold=fold_pieces)
    replies = Projection(name="replies", version=1, columns=columns, fold=fold_replies)
    log = [stored(event) for event in history(*OPEN_TURN, said(""), closed(), *([asked("n")] * 9))]
    cut, broken, again = checked(log, tmp_path, pieces, replies)
    assert cut.startswith("pieces[")
    assert cut.endswith("]: another row when the log is cut into pieces")
    assert broken.endswith("it cannot be folded from event 1 on: KeyError")
    assert again == broken
