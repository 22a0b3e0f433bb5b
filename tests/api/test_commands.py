"""Commands over HTTP: what each answers, and that a repeat is the same command."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from tests.api.conftest import Api


async def test_a_conversation_is_created_with_its_first_message(api: Api) -> None:
    answer = await api("POST", "/v1/conversations", json={"title": "Trip", "message": {"content": "hello"}})

    assert answer.status == 201
    assert answer.headers["Location"] == f"/v1/conversations/{answer.json['conversation_id']}"
    assert (answer.json["seq"], answer.json["queued"]) == (2, 0)
    events = await api("GET", f"{answer.headers['Location']}/events")
    assert [event["type"] for event in events.json["items"]] == ["conversation_started", "user_msg"]


async def test_a_conversation_can_be_created_without_a_body(api: Api) -> None:
    assert (await api("POST", "/v1/conversations")).status == 201


async def test_a_taken_id_is_refused(api: Api) -> None:
    body = {"id": str(uuid4())}

    assert (await api("POST", "/v1/conversations", json=body)).status == 201
    again = await api("POST", "/v1/conversations", json=body)

    assert (again.status, again.json["type"]) == (409, "urn:rejoinder:exists")


async def test_r11_a_command_is_possible_the_moment_after_the_201(api: Api) -> None:
    path = await api.new_conversation()

    sent = await api("POST", f"{path}/messages", json={"content": "hello", "message_id": "m1"})

    assert (sent.status, sent.json["message_id"], sent.json["queued"]) == (202, "m1", 0)


async def test_cancelling_says_whether_anything_was_there_to_cancel(api: Api) -> None:
    path = await api.new_conversation()

    nothing = await api("POST", f"{path}/cancel")
    await api("POST", f"{path}/messages", json={"content": "hello"})
    something = await api("POST", f"{path}/cancel", json={"reason": "changed my mind"})

    assert (nothing.status, nothing.json["cancelled"]) == (200, False)
    assert (something.status, something.json["cancelled"]) == (202, True)


async def test_an_ended_conversation_accepts_nothing(api: Api) -> None:
    path = await api.new_conversation()

    assert (await api("POST", f"{path}/end", json={"reason": "done"})).status == 200
    refused = await api("POST", f"{path}/messages", json={"content": "hello"})

    assert (refused.status, refused.json["type"]) == (409, "urn:rejoinder:ended")


async def test_b4_a_message_that_asks_for_it_is_refused_while_the_agent_is_busy(api: Api) -> None:
    path = await api.new_conversation({"message": {"content": "hello"}})

    refused = await api("POST", f"{path}/messages", json={"content": "and?", "when_busy": "reject"})

    assert (refused.status, refused.json["type"]) == (409, "urn:rejoinder:busy")
    assert await api.length_of(path) == 2


async def test_settings_change_by_a_merge_patch(api: Api) -> None:
    path = await api.new_conversation({"settings": {"model": "a", "max_steps": 3}, "metadata": {"k": 1}})

    changed = await api("PATCH", path, json={"settings": {"model": None, "max_steps": 4}})

    assert changed.status == 200
    data = (await api("GET", f"{path}/events")).json["items"][-1]["data"]
    assert (data["settings"], data["metadata"]) == ({"max_steps": 4}, {"k": 1})


async def test_the_same_key_and_body_give_the_same_answer_and_do_nothing_twice(api: Api) -> None:
    path = await api.new_conversation()
    headers = {"Idempotency-Key": "order-1"}

    first = await api("POST", f"{path}/messages", headers=headers, json={"content": "hi", "metadata": {"a": 1, "b": 2}})
    again = await api("POST", f"{path}/messages", headers=headers, json={"metadata": {"b": 2, "a": 1}, "content": "hi"})

    assert (again.status, again.raw) == (first.status, first.raw)
    assert await api.length_of(path) == 2


async def test_another_body_under_the_same_key_is_refused(api: Api) -> None:
    path = await api.new_conversation()
    headers = {"Idempotency-Key": "order-1"}

    await api("POST", f"{path}/messages", headers=headers, json={"content": "hi"})
    other = await api("POST", f"{path}/messages", headers=headers, json={"content": "ho"})

    assert (other.status, other.json["type"]) == (422, "urn:rejoinder:idempotency-mismatch")
    assert await api.length_of(path) == 2


async def test_a_message_id_is_a_key_of_its_own_kind(api: Api) -> None:
    path = await api.new_conversation()
    body = {"content": "hi", "message_id": "m1"}

    first = await api("POST", f"{path}/messages", json=body)
    again = await api("POST", f"{path}/messages", json=body)
    keyed = await api("POST", f"{path}/messages", json={"content": "hi"}, headers={"Idempotency-Key": "m1"})

    assert first.raw == again.raw
    assert keyed.json["seq"] == 3


async def test_a_repeated_creation_answers_with_the_same_conversation(api: Api) -> None:
    headers = {"Idempotency-Key": "new"}

    first = await api("POST", "/v1/conversations", json={"title": "a"}, headers=headers)
    again = await api("POST", "/v1/conversations", json={"title": "a"}, headers=headers)
    of_another_user = await api("POST", "/v1/conversations", json={"title": "a"}, headers=headers, by="bob")
    other = await api("POST", "/v1/conversations", json={"title": "b"}, headers=headers)

    assert first.raw == again.raw
    assert of_another_user.json["conversation_id"] != first.json["conversation_id"]
    assert other.json["type"] == "urn:rejoinder:idempotency-mismatch"


async def test_l11_text_that_no_store_takes_is_cleaned(api: Api) -> None:
    path = await api.new_conversation()
    body = '{"content": "a\\u0000b\\ud800c", "metadata": {"k\\u0000": "\\udfff"}}'

    sent = await api("POST", f"{path}/messages", data=body, headers={"Content-Type": "application/json"})

    assert sent.status == 202
    data = (await api("GET", f"{path}/events")).json["items"][-1]["data"]
    assert data["content"] == [{"type": "text", "text": "a\ufffdb\ufffdc"}]
    assert data["metadata"] == {"k\ufffd": "\ufffd"}


async def test_a_message_larger_than_an_event_may_be_is_refused(api: Api) -> None:
    path = await api.new_conversation()

    refused = await api("POST", f"{path}/messages", json={"content": "x" * 600_000})

    assert (refused.status, refused.json["type"]) == (413, "urn:rejoinder:too-large")
    assert await api.length_of(path) == 1


async def test_the_id_of_a_first_message_makes_its_conversation_one(api: Api) -> None:
    body = {"message": {"content": "hi", "message_id": "m-77"}}
    first, again = [await api("POST", "/v1/conversations", json=body) for _ in range(2)]
    assert (first.status, first.raw) == (again.status, again.raw) == (201, first.raw)


async def test_the_same_key_sent_at_once_is_one_command(api: Api) -> None:
    path = await api.new_conversation()
    sent = [
        api("POST", f"{path}/messages", json={"content": "x", "respond": False}, headers={"Idempotency-Key": "k"})
        for _ in range(6)
    ]
    answers = await asyncio.gather(*sent)
    assert {(answer.status, answer.raw) for answer in answers} == {(202, answers[0].raw)}
    assert await api.length_of(path) == 2


async def test_what_is_no_setting_and_no_image_is_refused(api: Api) -> None:
    path = await api.new_conversation()
    unknown = await api("PATCH", path, json={"settings": {"zz": None}})
    assert (unknown.status, unknown.json["errors"][0]["field"]) == (422, "settings.zz")
    script = [{"type": "image_url", "image_url": {"url": "javascript:1"}}]
    refused = await api("POST", f"{path}/messages", json={"content": script})
    assert refused.status == 422
    assert await api.length_of(path) == 1
