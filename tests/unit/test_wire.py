"""Between events and what a store holds: released shapes load for ever, and everything can be stored."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from domain import upcasts, wire
from domain.decisions import Outcome
from domain.errors import TooLarge, UnknownEventType
from domain.event_store import MAX_EVENT_BYTES, StoredEvent
from domain.events import EVENT_TYPES, AssistantMsg, ToolCall, UserMsg
from domain.owes import RunTools
from domain.parts import Part, text_part
from domain.scope import Actor
from domain.text import MAX_DEPTH, clean
from tests.support.given import (
    ADA,
    CONVERSATION,
    GATED_CALL,
    NOW,
    OPEN_TURN,
    answer,
    called,
    given,
    message,
    ran,
    reply,
    said,
    stored,
    suspended,
    wants,
)

if TYPE_CHECKING:
    from domain.event_envelope import ConversationEvent

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*.json"))
LONG = 3 * MAX_EVENT_BYTES


def shape_of(file: Path) -> dict[str, Any]:
    shape: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return shape


def stored_shape(shape: dict[str, Any]) -> StoredEvent:
    data, metadata = json.dumps(shape["data"]), json.dumps(shape["metadata"], default=str)
    event_id = shape["metadata"]["event_id"]
    stream = (wire.stream_of if shape["type"] in EVENT_TYPES else wire.summary_stream_of)(CONVERSATION)
    return StoredEvent(stream, 7, 70, event_id, shape["type"], data, metadata)


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_l9_every_released_shape_loads(file: Path) -> None:
    shape = shape_of(file)
    assert file.stem == f"{shape['type']}-{shape['schema_version']}"
    event = wire.decode(stored_shape(shape))
    assert (event.wire_type, event.seq, event.originator_id) == (shape["type"], 7, CONVERSATION)


@pytest.mark.parametrize("event_type", wire.ALL_TYPES.values(), ids=wire.ALL_TYPES)
def test_l9_what_is_written_today_is_the_golden_shape(event_type: type[ConversationEvent]) -> None:
    newest = next(file for file in GOLDEN if file.stem == f"{event_type.wire_type}-{event_type.schema_version}")
    shape = shape_of(newest)
    written = wire.encode(wire.decode(stored_shape(shape)))
    assert json.loads(written.data) == shape["data"]
    assert json.loads(written.metadata).items() <= shape["metadata"].items()


def test_l9_every_event_has_a_golden_file_with_all_of_its_fields() -> None:
    shapes = {(shape["type"], shape["schema_version"]): shape for shape in map(shape_of, GOLDEN)}
    for wire_type, event_type in wire.ALL_TYPES.items():
        released = shapes[wire_type, event_type.schema_version]
        own = {name for name, field in event_type.model_fields.items() if not field.exclude}
        assert released["data"].keys() == own, wire_type


def test_l9_an_older_shape_is_brought_to_the_newest_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for version, step in enumerate((named_id, text_only), 1):
        monkeypatch.setitem(upcasts.UPCASTS, ("user_msg", version), step)
    metadata = {"actor": {"kind": "user", "id": "ada", "roles": ["gone"]}, "occurred_at": NOW.isoformat()}
    shape = {"type": "user_msg", "data": {"id": "m1", "text": "Hi", "forgotten": 1}}
    first = wire.decode(stored_shape({**shape, "metadata": {"event_id": uuid4(), **metadata}}))
    assert isinstance(first, UserMsg)
    assert (first.message_id, first.content, first.actor) == ("m1", [text_part("Hi")], ADA)


def named_id(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "message_id": data["id"]}


def text_only(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "content": [{"type": "text", "text": data["text"]}]}


def test_l9_an_unknown_type_or_stream_is_an_error_of_its_own() -> None:
    known = stored_shape(shape_of(GOLDEN[0]))
    sibling = wire.summary_stream_of(CONVERSATION)
    others = (replace(known, stream=stream) for stream in ("summary-x", sibling))
    for strange in (replace(known, type="tomorrow"), *others):
        with pytest.raises(UnknownEventType):
            wire.decode(strange)


def test_streams_are_named_after_conversations() -> None:
    assert wire.conversation_of(wire.stream_of(CONVERSATION)) == CONVERSATION
    assert wire.conversation_of("erasures") is None
    assert wire.conversation_of("conversation-1; drop") is None


def test_metadata_names_ids_actor_and_the_command() -> None:
    event = given(*OPEN_TURN).log[1]
    mark = wire.CommandMark(uuid4(), "hash", {"message_id": "a\x00", "queued": 0})
    metadata = json.loads(wire.encode(event, mark).metadata)
    assert metadata == {
        "event_id": str(event.event_id),
        "occurred_at": NOW.isoformat(),
        "correlation_id": str(event.event_id),
        "causation_id": None,
        "actor": {"kind": "user", "id": "ada"},
        "schema_version": 1,
        "command_id": str(mark.command_id),
        "body_hash": "hash",
        "receipt": {"message_id": "a\ufffd", "queued": 0},
    }


def test_l10_of_the_caller_only_kind_and_id_are_written() -> None:
    assert Actor.model_fields.keys() == {"kind", "id"}


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec=None)), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60)
@for_all(value=JSON_LIKE)
def test_l11_whatever_people_models_and_tools_produce_is_stored_and_read_alike(value: Any) -> None:
    text = str(value)
    scenario = given(*OPEN_TURN).when(
        lambda c: c.record_reply(1, 1, reply(wants(args=value, name=text), text=text), now=NOW)
    )
    scenario.when(lambda c: c.record_step(1, 1, "c1", text, 1, value, now=NOW))
    scenario.when(lambda c: c.record_result(1, 1, ran(text=text), now=NOW))
    scenario.when(lambda c: c.send_message(message(text, text=text, metadata={"v": value}), now=NOW, actor=ADA))
    given(*GATED_CALL).when(lambda c: c.cancel(reason=text, now=NOW, actor=ADA, partial_text=text)).then(
        *scenario_types("resolution", "tool_result", "turn_ended")
    )
    assert scenario.newest(ToolCall).args == clean(value)
    for event in scenario.log:
        assert storable(event)


def scenario_types(*wire_types: str) -> list[type[ConversationEvent]]:
    return [EVENT_TYPES[wire_type] for wire_type in wire_types]


def storable(event: ConversationEvent) -> bool:
    record = stored(event)
    both = record.data + record.metadata
    return "\x00" not in both and len(record.data.encode()) <= MAX_EVENT_BYTES


@pytest.mark.parametrize(
    "text",
    ["x" * LONG, "\n" * LONG, "\x01" * LONG, "\U0001f600" * LONG, '"' * LONG],
    ids=["plain", "escaped", "control", "emoji", "quotes"],
)
def test_l11_what_is_too_long_for_an_event_is_cut_with_a_stub(text: str) -> None:
    scenario = given(*OPEN_TURN).when(lambda c: c.record_reply(1, 1, reply(wants(), text=text), now=NOW))
    assert "bytes in all]" in (scenario.newest(AssistantMsg).content[0].text or "")
    scenario.when(lambda c: c.record_result(1, 1, ran(text=text), now=NOW))
    assert scenario.result_of("c1").endswith("bytes in all]")
    cancelled = given(*OPEN_TURN).when(lambda c: c.cancel(reason=text, now=NOW, actor=ADA, partial_text=text))
    assert all(map(storable, [*scenario.log, *cancelled.log]))


def test_l11_a_call_with_arguments_too_long_for_an_event_cannot_run() -> None:
    scenario = given(*OPEN_TURN).when(
        lambda c: c.record_reply(1, 1, reply(wants(args={"a": "x" * LONG}, provider_id="x" * LONG)), now=NOW)
    )
    assert "too large" in scenario.result_of("c1")
    assert all(map(storable, scenario.log))


def test_l11_what_is_left_of_too_many_parts_fits() -> None:
    image = Part(type="image_url", image_url={"url": "data:" + "x" * LONG})
    parts = [text_part("one"), image, text_part("two")]
    log = given(*OPEN_TURN, said(""), called())
    log.when(lambda c: c.record_result(1, 1, Outcome("c1", "ok", parts), now=NOW))
    assert log.result_of("c1").startswith("one[image_url left out:")


def test_l11_a_long_answer_of_a_person_is_refused_rather_than_cut() -> None:
    human = given(*OPEN_TURN, said(""), called(executor="human"), suspended(kind="elicitation"))
    human.when(lambda c: c.resolve(answer(said="x" * LONG), now=NOW, actor=ADA)).then_refused(TooLarge)
    human.when(lambda c: c.send_message(message(text="ä" * LONG), now=NOW, actor=ADA)).then_refused(TooLarge)
    human.when(lambda c: c.send_message(message(metadata={"a": "ä" * LONG}), now=NOW, actor=ADA)).then_refused(TooLarge)


def test_l11_deep_values_are_stored_to_a_depth_that_every_parser_reads() -> None:
    deep: Any = "bottom"
    for _ in range(5_000):
        deep = [deep]
    round_trip = json.loads(json.dumps(clean(deep)))
    for _ in range(MAX_DEPTH):
        round_trip = round_trip[0]
    assert "nested" in round_trip
    given(*OPEN_TURN).when(lambda c: c.record_reply(1, 1, reply(wants(args=deep)), now=NOW)).and_owes(RunTools)
