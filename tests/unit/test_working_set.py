"""What the model sees of a conversation."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from domain.parts import Part, text_part
from domain.provider_messages import ProviderMessage, same_family
from domain.working_set import UnansweredCall, WorkingSet, working_set
from tests.support.given import (
    BEN,
    OPEN_TURN,
    Fact,
    asked,
    called,
    claimed,
    closed,
    given,
    got,
    history,
    message,
    ran,
    reply,
    resolved,
    said,
    started,
    suspended,
    wants,
)

if TYPE_CHECKING:
    from domain.event_envelope import ConversationEvent

SIGNED = Part(type="thinking", text="Hm", provider_data={"type": "thinking", "signature": "s"})
IMAGE = Part(type="image_url", image_url={"url": "data:image/png;base64,AA=="})


def seen(*facts: Fact, model: str = "demo", system_prompt: str | None = None) -> list[ProviderMessage]:
    return working_set(history(*facts), system_prompt=system_prompt, model=model)


def user(text: str) -> ProviderMessage:
    return {"role": "user", "content": text}


def spoken(text: str) -> ProviderMessage:
    return {"role": "assistant", "content": text}


def test_a_conversation_reads_as_system_prompt_and_turns_in_order() -> None:
    log = (*OPEN_TURN, said("Hi"), closed(), asked("m2", text="And?"), claimed())
    assert seen(*log, system_prompt="Be kind.") == [
        {"role": "system", "content": "Be kind."},
        user("Hello"),
        spoken("Hi"),
        user("And?"),
    ]


def test_t11_every_call_is_followed_by_its_one_result_in_the_order_of_the_calls() -> None:
    log = (*OPEN_TURN, said("Let me see"), called("c1", name="a"), called("c2", name="b"))
    results = (got("c2", text="two"), got("c1", "error", text="one"))
    assert seen(*log, *results)[1:] == [
        {
            "role": "assistant",
            "content": "Let me see",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "a", "arguments": '{"a":1}'}},
                {"id": "c2", "type": "function", "function": {"name": "b", "arguments": '{"a":1}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
    ]


def test_t11_a_call_without_a_result_is_a_loud_error_that_names_it() -> None:
    log = (*OPEN_TURN, said(""), called("c1"), called("c2"), got("c1"))
    with pytest.raises(UnansweredCall, match="c2"):
        seen(*log)
    with pytest.raises(UnansweredCall, match="c2"):
        seen(*log, said("again"))


def test_t12_ids_are_ours_and_not_the_providers() -> None:
    log = (*OPEN_TURN, said(""), called("call_ours", provider_id="call_0"), got("call_ours"))
    assert seen(*log)[1]["tool_calls"][0]["id"] == "call_ours"


def test_arguments_are_always_an_object_and_those_that_the_model_chose() -> None:
    odd = (*OPEN_TURN, said(""), called("c1", args="no JSON {"), called("c2", args=None), got("c1"), got("c2"))
    arguments = [json.loads(call["function"]["arguments"]) for call in seen(*odd)[1]["tool_calls"]]
    assert arguments == [{"arguments": "no JSON {"}, {"arguments": None}]
    edited = (called(gated=True), suspended(), resolved(outcome="edited", args={"a": 2}), got(text="ran with 2"))
    messages = seen(*OPEN_TURN, said(""), *edited)
    assert json.loads(messages[1]["tool_calls"][0]["function"]["arguments"]) == {"a": 1}
    assert messages[2]["content"] == "ran with 2"


def test_b1_an_enqueued_message_enters_with_the_turn_that_answers_it() -> None:
    log = (*OPEN_TURN, asked("m2", text="Later"), said("Hi"))
    assert seen(*log, closed())[-1] == spoken("Hi")
    assert seen(*log, closed(), claimed())[-2:] == [spoken("Hi"), user("Later")]


def test_b2_a_steering_message_enters_after_the_reply_that_did_not_see_it_and_its_results() -> None:
    steer = asked("m2", text="Hurry", when_busy="steer")
    log = (*OPEN_TURN, steer, said("", context_seq=3), called(), got(text="done"))
    assert [m["role"] for m in seen(*log)] == ["user", "assistant", "tool", "user"]
    between = (*OPEN_TURN, said(""), called(), steer, got(text="done"))
    assert [m["role"] for m in seen(*between)] == ["user", "assistant", "tool", "user"]
    assert seen(*between, said("Now"))[-2:] == [user("Hurry"), spoken("Now")]


def test_c8_a_reply_never_seems_to_ignore_what_it_had_not_seen() -> None:
    steer = asked("m2", text="Hurry", when_busy="steer")
    assert seen(*OPEN_TURN, steer, said("Hi", context_seq=3), said("Yes"))[-3:] == [
        spoken("Hi"),
        user("Hurry"),
        spoken("Yes"),
    ]
    assert seen(*OPEN_TURN, steer, said("Yes", context_seq=4))[-2:] == [user("Hurry"), spoken("Yes")]


def test_a_message_that_owes_no_answer_is_seen_by_the_next_call() -> None:
    note = asked("note", text="By the way", respond=False)
    assert seen(*OPEN_TURN, said("Hi"), closed(), note, asked("m2", text="And?"), claimed())[-2:] == [
        user("By the way"),
        user("And?"),
    ]
    assert seen(*OPEN_TURN, said("Hi"), closed(), asked("m2", text="And?"), note, claimed())[-2:] == [
        user("And?"),
        user("By the way"),
    ]
    assert seen(*OPEN_TURN, note)[-1] == user("By the way")


def test_what_the_callers_system_says_has_the_role_system() -> None:
    assert seen(started(), asked(role="system", text="It is May."), claimed()) == [
        {"role": "system", "content": "It is May."}
    ]


def test_b5_a_reply_that_was_cut_is_marked_for_the_model() -> None:
    messages = seen(*OPEN_TURN, closed("cancelled", partial_text="Once upon"), asked("m2", text="Shorter"), claimed())
    assert messages[1] == spoken("Once upon")
    assert "cut off" in messages[2]["content"]
    assert messages[3] == user("Shorter")


def test_b5_the_model_knows_of_a_turn_that_was_cancelled_before_anything_was_said() -> None:
    messages = seen(*OPEN_TURN, closed("cancelled"), asked("m2"), claimed())
    assert [m["role"] for m in messages] == ["user", "user", "user"]
    assert "cancelled" in messages[1]["content"]


def test_c3_what_a_request_showed_stays_in_its_place_when_its_reply_is_cut() -> None:
    asked_of_the_model = (*OPEN_TURN, asked("m2", text="Hurry", when_busy="steer"))
    messages = seen(*asked_of_the_model, closed("cancelled", partial_text="Cu"), claimed())
    assert messages[:3] == [*seen(*asked_of_the_model), spoken("Cu")]


def test_a_failed_turn_leaves_a_transcript_that_goes_on() -> None:
    failed = given(*OPEN_TURN).when(lambda c: c.record_reply(1, 1, reply(wants("c1"), wants("c2")), now=c.modified_on))
    failed.when(lambda c: c.record_result(1, 1, ran("c2"), now=c.modified_on))
    failed.when(lambda c: c.fail_turn(1, 1, "max_steps", now=c.modified_on))
    failed.when(lambda c: c.send_message(message(text="Again"), now=c.modified_on, actor=BEN))
    failed.when(lambda c: c.start_turn(now=c.modified_on))
    messages = working_set(failed.log, system_prompt=None, model="demo")
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "tool", "user"]
    assert "failed (max_steps)" in messages[2]["content"]


def test_an_empty_reply_is_left_out() -> None:
    assert seen(*OPEN_TURN, said(""), closed(), asked("m2", text="Well?"), claimed()) == [user("Hello"), user("Well?")]


def test_images_and_other_parts_of_messages_and_results_pass_through() -> None:
    content = [text_part("Look"), IMAGE, Part(type="file", data={"file": {"file_id": "f"}})]
    passed = [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": IMAGE.image_url},
        {"type": "file", "file": {"file_id": "f"}},
    ]
    asks = Fact(asked().type, {"message_id": "m1", "content": content})
    assert seen(started(), asks, claimed())[0]["content"] == passed
    result = Fact(got().type, {"tool_call_id": "c1", "status": "ok", "content": content})
    assert seen(*OPEN_TURN, said(""), called(), result)[-1]["content"] == passed


def test_c5_of_a_big_result_in_parts_so_much_text_is_shown_in_all_and_every_image() -> None:
    content = [text_part("a" * 60), IMAGE, text_part("b" * 60), text_part("c" * 60)]
    result = Fact(got().type, {"tool_call_id": "c1", "status": "ok", "content": content})
    log = history(*OPEN_TURN, said(""), called(), result)
    shown = working_set(log, system_prompt=None, model="demo", result_bytes=100)[-1]
    first, image, second = shown["content"]
    assert (shown["tool_call_id"], first["text"], image["type"]) == ("c1", "a" * 60, "image_url")
    assert second["text"].startswith("b" * 40 + "\n[Cut off here: 180 bytes in all. Call the tool again")
    whole = working_set(log, system_prompt=None, model="demo", result_bytes=180)[-1]
    assert [part.get("text") for part in whole["content"]] == ["a" * 60, None, "b" * 60, "c" * 60]


@pytest.mark.parametrize("model", ["gemini/gemini-3-pro", "openai/gpt-5"])
def test_what_is_opaque_of_a_call_goes_back_to_its_own_model_family_only(model: str) -> None:
    opaque = {"thought_signature": "s"}
    log = (*OPEN_TURN, said("", model="gemini/gemini-2.5-flash"), called(provider_data=opaque), got())
    call = seen(*log, model=model)[1]["tool_calls"][0]
    assert call.get("provider_specific_fields") == (opaque if model.startswith("gemini") else None)


@pytest.mark.parametrize(
    ("model", "back"),
    [("anthropic/claude-opus-4-1", True), ("openai/gpt-5", False), ("bedrock/claude-sonnet-4-5", False)],
)
def test_thinking_goes_back_to_its_own_model_family_only(model: str, back: bool) -> None:
    hidden = Part(type="thinking", text="", provider_data={"type": "redacted_thinking", "data": "x"})
    unsigned = Part(type="thinking", text="So")
    content = [SIGNED, hidden, unsigned, text_part("Hi"), IMAGE]
    message = seen(*OPEN_TURN, said(content=content, model="anthropic/claude-sonnet-4-5"), model=model)[-1]
    if back:
        assert message["thinking_blocks"] == [
            {"type": "thinking", "thinking": "Hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "x"},
        ]
        assert message["content"][1]["type"] == "image_url"
    else:
        assert message == spoken("Hi")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("anthropic/claude-sonnet-4-5", "anthropic/claude-opus-4-1-20250805", True),
        ("claude-sonnet-4-5", "anthropic/claude-opus-4-1", True),
        ("openai/gpt-5", "openai/gpt-4.1-mini", True),
        ("openai/gpt-5", "openai/o3", False),
        ("anthropic/claude-sonnet-4-5", "vertex_ai/claude-sonnet-4-5", False),
        ("openrouter/google/gemini-3", "openrouter/google/gemini-2.5-pro", True),
        ("openrouter/google/gemini-3", "openrouter/qwen/qwen3", False),
        ("demo", "demo", True),
        ("7b", "8b", False),
    ],
)
def test_models_of_one_provider_and_family_are_told_from_others(one: str, other: str, same: bool) -> None:
    assert same_family(one, other) is same
    assert same_family(other, one) is same


def test_event_by_event_it_renders_the_same() -> None:
    log = history(*OPEN_TURN, asked("m2"), said("", context_seq=3), called(), got(), said(), closed(), claimed())
    incremental = WorkingSet(system_prompt="Be kind.", model="demo")
    for event in log:
        incremental.fold([event])
    assert incremental.messages() == working_set(log, system_prompt="Be kind.", model="demo")


def test_ten_thousand_events_are_rendered_in_a_blink() -> None:
    turns: list[ConversationEvent] = []
    one = history(*OPEN_TURN, asked("n", respond=False), said(""), called(), got(), said("Hi"), closed())[1:]
    while len(turns) < 10_000:
        turns += [event.model_copy(update={"originator_version": len(turns) + n}) for n, event in enumerate(one)]
    took = []
    for _ in range(3):  # one of them may pay for the garbage of the tests before
        begun = time.process_time()
        working_set(turns, system_prompt=None, model="demo")
        took.append(time.process_time() - begun)
    assert min(took) < 0.3
