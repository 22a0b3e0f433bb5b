"""The stream's view of messages: whoever follows it ends with the rows of the read model, wherever they began."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given as given_any
from hypothesis import settings
from hypothesis import strategies as st

from api.answers import json_bytes
from api.streams.views import MessageView
from domain.wire import conversation_of
from projections.display_messages import DISPLAY_MESSAGES
from projections.messages import item_of
from projections.testing import fold_whole, random_batches
from tests.support.given import (
    GATED_CALL,
    OPEN_TURN,
    Fact,
    asked,
    called,
    claimed,
    closed,
    finished,
    got,
    history,
    resolved,
    said,
    started,
    stored,
    suspended,
)
from tests.support.random_log import random_log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from domain.event_store import StoredEvent

Items = dict[str, dict[str, Any]]

LIVES = {
    "runs": (*OPEN_TURN, said(), called(), got(), said(), closed()),
    "fails": (*OPEN_TURN, said(), called(), got(status="error"), said(), closed()),
    "approved": (*GATED_CALL, resolved(), got(), said(), closed()),
    "edited": (*GATED_CALL, resolved(outcome="edited", args={"a": 2}), got(), said(), closed()),
    "rejected": (*GATED_CALL, resolved(outcome="rejected"), got(status="rejected"), said(), closed()),
    "expired": (*GATED_CALL, resolved(outcome="expired"), got(status="expired"), said(), closed()),
    "rescheduled": (*GATED_CALL, suspended(), resolved(), got(), said(), closed()),
    "cancelled": (*GATED_CALL, resolved(outcome="cancelled"), got(status="cancelled"), closed("cancelled")),
    "asked twice": (
        *OPEN_TURN,
        said(),
        called(executor="client", gated=True),
        suspended(),
        resolved(),
        suspended(kind="client"),
        resolved(outcome="answered", answer=1),
        got(),
        closed(),
    ),
    "cut": (*OPEN_TURN, closed("cancelled", partial_text="so f")),
    "steered": (*OPEN_TURN, asked("m2", when_busy="steer"), said(), asked("m3"), closed(), claimed(), said(), closed()),
    "ended": (started(), asked(), asked("m2", respond=False), finished()),
}


class OneStream:
    """A store of one stream, as the view asks for it; counts what is read."""

    def __init__(self, log: Sequence[StoredEvent]) -> None:
        self.log, self.read_events = log, 0

    async def read(self, stream: str, *, before: int, limit: int) -> list[StoredEvent]:
        page = [event for event in self.log if event.stream == stream and event.seq < before][-limit:]
        self.read_events += len(page)
        return page


def loaded(log: Sequence[StoredEvent]) -> Items:
    """Return what GET …/messages shows after this log, by id."""
    items = [json.loads(json_bytes(item_of(row))) for row in fold_whole(DISPLAY_MESSAGES, log).values()]
    return {item["id"]: item for item in items}


async def frames_of(log: Sequence[StoredEvent], after: int, chance: random.Random) -> list[bytes]:
    conversation_id = conversation_of(log[0].stream)
    assert conversation_id is not None
    view = MessageView(conversation_id, after, OneStream(log))  # type: ignore[arg-type]  # all that it asks for
    begin = await view.begin()
    assert begin <= after
    return [frame for batch in random_batches(log[begin:], chance) for frame in view.tell(batch)]


def parsed(frame: bytes) -> tuple[int | None, dict[str, Any]]:
    head, _, data = frame.decode().removesuffix("\n\n").rpartition("event: message\ndata: ")
    assert "\n" not in data
    return int(head.removeprefix("id: ")) if head else None, json.loads(data)


async def follows(log: Sequence[StoredEvent], after: int, chance: random.Random) -> None:
    shown = loaded(log[:after])
    seqs, unfinished = [after], False
    for frame in await frames_of(log, after, chance):
        seq, item = parsed(frame)
        shown[item["id"]] = item
        unfinished = seq is None
        if seq is not None:
            seqs.append(seq)
            if len(seqs) % 3 == 0:
                assert shown == loaded(log[:seq]), "a cursor is where all of it was told"
    assert not unfinished
    assert seqs == sorted(set(seqs))
    assert shown == loaded(log)


@pytest.mark.parametrize("life", LIVES)
async def test_r10_who_followed_from_any_event_on_has_the_rows_of_who_loads_at_the_end(life: str) -> None:
    log = [stored(event) for event in history(*LIVES[life])]
    for after in range(len(log) + 1):
        await follows(log, after, random.Random(after))


@settings(max_examples=100)
@given_any(st.integers(0, 2**32), st.floats(0, 1))
async def test_r10_holds_for_any_conversation_and_any_cursor(seed: int, part: float) -> None:
    chance = random.Random(seed)
    log = random_log(chance)
    await follows(log, round(part * len(log)), chance)


async def test_a_cursor_beyond_the_log_is_waited_for() -> None:
    log = [stored(event) for event in history(*LIVES["approved"])]
    assert await frames_of(log, 2**62, random.Random()) == []


async def test_r3_coming_back_to_a_long_conversation_reads_its_newest_turn() -> None:
    facts: list[Fact] = [started()]
    for number in range(300):
        facts += [asked(f"m{number}"), claimed(), said(), closed()]
    log = [stored(event) for event in history(*facts)]
    store = OneStream(log)
    conversation_id = conversation_of(log[0].stream)
    assert conversation_id is not None
    view = MessageView(conversation_id, len(log), store)  # type: ignore[arg-type]  # all that it asks for
    assert await view.begin() == len(log) - 2
    assert store.read_events <= 64
