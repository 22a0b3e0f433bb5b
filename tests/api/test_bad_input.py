"""Bad input on every route: a problem that names the field, never a 5xx, nothing recorded."""

from __future__ import annotations

import io
import itertools
import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from api.http import ROUTES

if TYPE_CHECKING:
    from api.routing import Route
    from tests.api.conftest import Api

TAKING_BODIES = [route for route in ROUTES if route.body is not None]
ASKED = [route for route in ROUTES if route.query is not None]
TAKING_NONE = [route for route in ROUTES if route.body is None and route.access == "admin" and route.method != "GET"]
EXAMPLES: dict[str, Any] = {"content": "x", "outcome": "approve", "expires_at": None}


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


def valid_body(route: Route) -> dict[str, Any]:
    """A body that would be fine: the route's required fields."""
    assert route.body is not None
    required = [name for name, field in route.body.model_fields.items() if field.is_required()]
    return {name: EXAMPLES[name] for name in required}


async def call(api: Api, route: Route, conversation: str, **arguments: Any) -> Any:
    path = (
        route.path.replace("{conversation_id}", conversation)
        .replace("{tool_call_id}", "call_1")
        .replace("{name}", "usage")
        .replace("{to_seq}", "4")
        .replace("{event_id}", "1")
        .replace("{model_call_id}", "00000000-0000-4000-8000-000000000001")
    )
    return await api(route.method, path, by="admin", **arguments)


def names(answer: Any) -> list[str]:
    return [error["field"] for error in answer.json["errors"]]


@pytest.mark.parametrize("route", TAKING_BODIES, ids=name_of)
async def test_a_body_that_does_not_fit_is_refused_by_name_and_leaves_nothing(api: Api, route: Route) -> None:
    conversation = (await api.new_conversation(by="admin")).rpartition("/")[2]
    head = await api.resources.event_store.head()
    as_json = {"Content-Type": "application/json"}
    fine = valid_body(route)

    async def refused(status: int, field: str | None, **arguments: Any) -> None:
        answer = await call(api, route, conversation, **arguments)
        assert (answer.status, answer.headers["Content-Type"]) == (status, "application/problem+json"), answer.raw
        assert field is None or any(f"{name}.".startswith(f"{field}.") for name in names(answer)), answer.raw
        assert b"Traceback" not in answer.raw

    await refused(422, "surprise", json={**fine, "surprise": "s3cret"})
    await refused(422, "body", json=["s3cret"])
    await refused(422, "body", data=b"null", headers=as_json)
    await refused(422, "body", data=b"{", headers=as_json)
    await refused(422, "body", data=b'{"a": }', headers=as_json)
    await refused(422, "body", data=b"\xff\xfe", headers=as_json)
    await refused(422, "a", data=b'{"a": 1, "a": 2}', headers=as_json)
    await refused(422, "a.0", data=b'{"a": [NaN]}', headers=as_json)
    await refused(422, "a", data=b'{"a": -Infinity}', headers=as_json)
    await refused(422, "a", data=b'{"a": 1e999}', headers=as_json)
    await refused(422, "body", data=b'{"a": ' + b"9" * 5000 + b"}", headers=as_json)
    await refused(422, None, data=b'{"a": ' + b"[" * 80 + b"]" * 80 + b"}", headers=as_json)
    await refused(422, "body", data=b"[" * 100_000, headers=as_json)
    await refused(415, None, data=json.dumps(fine).encode(), headers={"Content-Type": "text/plain"})
    await refused(415, None, data=b"{}", headers={"Content-Type": "application/json; charset=utf-16"})
    await refused(413, None, data=io.BytesIO(b" " * (1024 * 1024 + 1)), headers=as_json)
    await refused(422, "Idempotency-Key", json=fine, headers={"Idempotency-Key": "x" * 300})
    await refused(422, "Idempotency-Key", json=fine, headers={"Idempotency-Key": "é"})
    await refused(422, "surprise", json=fine, params={"surprise": "1"})
    for name in fine:
        await refused(422, name, json={key: value for key, value in fine.items() if key != name})
    for name in route.body.model_fields if route.body else ():
        if name != "answer":  # may be anything
            await refused(422, name, json={**fine, name: [[7]]})
    assert await api.resources.event_store.head() == head


async def test_a_chunked_body_of_unknown_length_is_bounded_too(api: Api) -> None:
    async def endless() -> Any:
        for _ in range(40):
            yield b" " * 65_536

    answer = await api("POST", "/v1/conversations", data=endless(), headers={"Content-Type": "application/json"})

    assert (answer.status, answer.json["type"]) == (413, "urn:rejoinder:too-large")


async def test_a_body_of_exactly_the_limit_is_taken(api: Api) -> None:
    body = b"{}" + b" " * (1024 * 1024 - 2)

    answer = await api("POST", "/v1/conversations", data=io.BytesIO(body), headers={"Content-Type": "application/json"})

    assert answer.status == 201


async def test_a_body_that_is_not_what_its_encoding_says_is_refused(api: Api) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}

    answer = await api("POST", "/v1/conversations", data=b"this is no gzip", headers=headers)

    assert 400 <= answer.status < 500


async def test_every_fault_of_a_message_is_named_as_the_caller_wrote_it(api: Api) -> None:
    path = await api.new_conversation()
    faults: list[tuple[Any, str]] = [
        ({"content": []}, "content"),
        ({"content": ""}, "content"),
        ({"content": [{"type": "text"}]}, "content.0.text"),
        ({"content": [{"type": "audio"}]}, "content.0"),
        ({"content": [{"type": "text", "text": "a", "extra": 1}]}, "content.0.extra"),
        ({"content": [{"type": "image_url", "image_url": {"url": 5}}]}, "content.0.image_url.url"),
        ({"content": "a", "respond": "yes"}, "respond"),
        ({"content": "a", "role": "assistant"}, "role"),
        ({"content": "a", "when_busy": "explode"}, "when_busy"),
        ({"content": "a", "message_id": ""}, "message_id"),
    ]

    for body, field in faults:
        answer = await api("POST", f"{path}/messages", json=body)
        assert (answer.status, names(answer)[0]) == (422, field), body


async def test_every_fault_of_settings_is_named(api: Api) -> None:
    path = await api.new_conversation()
    faults: list[tuple[Any, str]] = [
        ({"max_steps": 0}, "settings.max_steps"),
        ({"nonsense": 1}, "settings.nonsense"),
        ({"tools": ["no_such_tool"]}, "settings.tools.0"),
        ({"fallback_models": ["a", 2]}, "settings.fallback_models.1"),
        ({"approval_timeout_s": "soon"}, "settings.approval_timeout_s"),
        ({"model_params": {"temperature": "hot"}}, "settings.model_params.temperature"),
        ({"model_params": {"temperature": True}}, "settings.model_params.temperature"),
        ({"model_params": {"max_tokens": 0}}, "settings.model_params.max_tokens"),
        ({"model_params": {"max_tokens": 1.5}}, "settings.model_params.max_tokens"),
        ({"model_params": {"stop": 3}}, "settings.model_params.stop"),
        ({"model_params": {"tool_choice": ["a"]}}, "settings.model_params.tool_choice"),
        ({"model_params": {"response_format": "json"}}, "settings.model_params.response_format"),
        ({"model_params": {"api_base": "http://evil.example"}}, "settings.model_params.api_base"),
    ]

    for (settings, field), (method, where) in itertools.product(
        faults, (("POST", "/v1/conversations"), ("PATCH", path))
    ):
        answer = await api(method, where, json={"settings": settings})
        assert (answer.status, set(names(answer))) == (422, {field}), settings


async def test_settings_of_every_kind_are_kept_as_they_were_given(api: Api) -> None:
    params = {
        "temperature": 0,
        "top_p": 0.5,
        "max_tokens": 100,
        "stop": ["a", "b"],
        "tool_choice": {"type": "function", "function": {"name": "get"}},
        "reasoning_effort": "low",
        "response_format": {"type": "json_object"},
        "parallel_tool_calls": False,
        "logit_bias": {"50256": -100},
    }
    path = await api.new_conversation({"settings": {"model_params": params}})
    await api("PATCH", path, json={"settings": {"model_params": {"top_p": None, "stop": "c"}}})

    started, changed = [event["data"]["settings"] for event in (await api("GET", f"{path}/events")).json["items"]]
    assert started == {"model_params": params}
    del params["top_p"]
    assert changed == {"model_params": params | {"stop": "c"}}


async def test_no_problem_repeats_a_value(api: Api) -> None:
    path = await api.new_conversation()

    for body in (
        {"content": {"s3cret": "s3cret-value"}},
        {"content": "a", "role": "s3cret-value"},
        {"content": "a", "respond": "s3cret-value"},
    ):
        answer = await api("POST", f"{path}/messages", json=body)
        assert answer.status == 422
        assert b"s3cret-value" not in answer.raw
    answer = await api("POST", "/v1/conversations", json={"id": "s3cret-value"})
    assert (answer.status, names(answer)) == (422, ["id"])
    assert b"s3cret-value" not in answer.raw


@pytest.mark.parametrize("route", TAKING_NONE, ids=name_of)
async def test_a_body_where_none_is_taken_is_refused_by_the_names_of_its_fields(api: Api, route: Route) -> None:
    answer = await call(api, route, str(uuid4()), json={"surprise": "s3cret"})
    assert (answer.status, names(answer)) == (422, ["surprise"])


@pytest.mark.parametrize("route", ASKED, ids=name_of)
async def test_a_query_that_does_not_fit_is_refused_by_name(api: Api, route: Route) -> None:
    conversation = (await api.new_conversation(by="admin", projected=True)).rpartition("/")[2]
    assert route.query is not None

    async def refused(field: str, parameters: Any) -> None:
        answer = await call(api, route, conversation, params=parameters)
        assert (answer.status, answer.json.get("type")) == (422, "urn:rejoinder:invalid"), answer.raw
        assert field in names(answer)

    await refused("surprise", {"surprise": "1"})
    for name, field in route.query.model_fields.items():
        await refused(name, [(name, "1"), (name, "1")])
        await refused(name, {name: "\x00"})
        if field.annotation is not str and name != "q":  # any text may be searched for
            await refused(name, {name: "no such thing"})
        if "int" in str(field.annotation):
            await refused(name, {name: "-1"})
            await refused(name, {name: "9" * 30})
    if "cursor" in route.query.model_fields:
        for cursor in ("%%%", "a", "bnVsbA", "W10", "é", "x" * 2000, "W3siYSI6MX0sMSwyLDNd"):
            await refused("cursor", {"cursor": cursor})


async def test_bytes_in_a_query_that_are_no_text_are_refused(api: Api) -> None:
    path = await api.new_conversation()

    for query in ("after=%ff", "%ff=1", "after=%ed%a0%80", "after=%00", "%00=1", "a=%"):
        answer = await api("GET", f"{path}/events?{query}", by="ada")
        assert answer.status == 422, (query, answer.raw)


async def test_an_id_that_is_no_uuid_is_not_found(api: Api) -> None:
    known = (await api.new_conversation(by="admin")).rpartition("/")[2]
    of_a_conversation = [route for route in ROUTES if "{conversation_id}" in route.path]
    no_uuids = ("1", "x" * 300, "%00", "%ff", known.replace("-", ""), f"%7B{known}%7D", known + "%00", "é", "..;")

    for route in of_a_conversation:
        absent = await call(api, route, str(uuid4()), json=valid_body(route) if route.body else None)
        assert absent.status == 404
        for no_uuid in no_uuids:
            answer = await call(api, route, no_uuid)
            assert (answer.status, answer.raw) == (404, absent.raw), (name_of(route), no_uuid)


async def test_strange_tool_call_ids_wait_for_nothing(api: Api) -> None:
    path = await api.new_conversation()

    for tool_call_id in ("call_1", "%00", "%ff", "x" * 2000, "é", "%2e%2e%2f"):
        answer = await api("POST", f"{path}/tool-calls/{tool_call_id}/resolution", json={"outcome": "approve"})
        assert (answer.status, answer.json["type"]) == (409, "urn:rejoinder:stale"), tool_call_id
        answer = await api("PATCH", f"{path}/tool-calls/{tool_call_id}", json={"expires_at": None})
        assert (answer.status, answer.json["type"]) == (409, "urn:rejoinder:stale"), tool_call_id
    assert await api.length_of(path) == 1


async def test_a_deadline_must_be_a_time_with_its_offset(api: Api) -> None:
    path = await api.new_conversation()

    for time in [
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "2031-01-01T00:00:00",
        "soon",
        5,
        "1700000000",
    ]:
        answer = await api("PATCH", f"{path}/tool-calls/call_1", json={"expires_at": time})
        assert answer.status in (409, 422), time


async def test_an_unknown_path_and_a_wrong_method_are_problems(api: Api) -> None:
    absent = await api("GET", "/v1/nothing")
    wrong = await api("PUT", "/v1/conversations")

    assert (absent.status, absent.json["type"]) == (404, "urn:rejoinder:not-found")
    assert (wrong.status, wrong.json["type"]) == (405, "urn:rejoinder:method-not-allowed")
    assert "POST" in wrong.headers["Allow"]


async def test_what_is_not_built_yet_is_absent(api: Api) -> None:
    conversation = await api.new_conversation()

    for method, path in [
        ("GET", "/model-calls"),
    ]:
        assert (await api(method, conversation + path)).status == 404, path
