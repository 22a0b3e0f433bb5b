"""Who may call: keys, roles, other tenants' conversations, foreign hosts and pages."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from api.http import ROUTES
from tests.api.test_bad_input import name_of, valid_body

if TYPE_CHECKING:
    from api.routing import Route
    from tests.api.conftest import Answer, Api

OF_A_CONVERSATION = [route for route in ROUTES if "{conversation_id}" in route.path]
CLOSED = [route for route in ROUTES if route.access != "open"]


async def call(api: Api, route: Route, conversation: str, **arguments: Any) -> Answer:
    path = (
        route.path.replace("{conversation_id}", conversation)
        .replace("{tool_call_id}", "call_1")
        .replace("{to_seq}", "5")
        .replace("{name}", "usage")
        .replace("{event_id}", "1")
        .replace("{model_call_id}", "00000000-0000-4000-8000-000000000001")
    )
    body = valid_body(route) if route.body else None
    return await api(route.method, path, json=body, **arguments)


def seen(answer: Answer) -> tuple[int, bytes, list[tuple[str, str]]]:
    """Everything that a caller can compare of an answer."""
    return answer.status, answer.raw, sorted((name, value) for name, value in answer.headers.items() if name != "Date")


async def test_p1_what_belongs_to_others_looks_like_what_is_absent_on_every_route(api: Api) -> None:
    mine = {"message": {"content": "mine"}}
    conversation = (await api.new_conversation(mine, projected=True)).rpartition("/")[2]
    head = await api.resources.event_store.head()

    for route, caller in itertools.product(OF_A_CONVERSATION, ("bob", "stranger")):
        absent = await call(api, route, str(uuid4()), by=caller)
        foreign = await call(api, route, conversation, by=caller)
        assert absent.status == 404, name_of(route)
        assert seen(foreign) == seen(absent), name_of(route)

    assert await api.resources.event_store.head() == head


async def test_an_admin_opens_the_conversations_of_the_tenant(api: Api) -> None:
    path = await api.new_conversation()

    assert (await api("GET", f"{path}/events", by="admin")).status == 200
    assert (await api("POST", f"{path}/messages", json={"content": "hi"}, by="admin")).status == 202


async def test_h11_an_approver_decides_but_does_not_read_or_command(api: Api) -> None:
    path = await api.new_conversation()

    decided = await api("POST", f"{path}/tool-calls/call_1/resolution", json={"outcome": "approve"}, by="approver")

    assert (decided.status, decided.json["type"]) == (409, "urn:rejoinder:stale")
    assert (await api("GET", f"{path}/events", by="approver")).status == 404
    assert (await api("POST", f"{path}/messages", json={"content": "hi"}, by="approver")).status == 404


async def test_without_a_valid_key_every_closed_route_answers_the_same_401(api: Api) -> None:
    conversation = (await api.new_conversation()).rpartition("/")[2]
    reference = seen(await api("GET", "/v1/conversations", by=None))
    assert reference[0] == 401
    assert ("WWW-Authenticate", "Bearer") in reference[2]

    wrong = (None, "Bearer", "Bearer wrong", "Basic YWRhOmFkYQ==", "ada", "Bearer ada ada", "Bearer é")
    for route, authorization in itertools.product(CLOSED, wrong):
        headers = {"Authorization": authorization} if authorization else {}
        answer = await call(api, route, conversation, by=None, headers=headers)
        assert seen(answer) == reference, (name_of(route), authorization)


@pytest.mark.usefixtures("patient_checks")
async def test_open_routes_need_no_key(api: Api) -> None:
    await api.new_conversation(projected=True)

    for route in ROUTES:
        if route.access == "open" and "{" not in route.path:
            assert (await api(route.method, route.path, by=None)).status == 200, name_of(route)


async def test_operations_need_the_role_admin(api: Api) -> None:
    operations = [route for route in ROUTES if route.access == "admin"]
    callers = {"ada": {403}, "approver": {403}, "admin": {200, 202}}

    assert operations
    for route, (caller, status) in itertools.product(operations, callers.items()):
        path = route.path.format(name="conversations")
        assert (await api(route.method, path, by=caller)).status in status, name_of(route)


async def test_a_server_without_keys_knows_one_local_administrator(keyless: Api) -> None:
    path = await keyless.new_conversation(by="nobody in particular")

    started = (await keyless("GET", f"{path}/events", by=None)).json["items"][0]

    assert (started["data"]["tenant"], started["data"]["owner"]) == ("local", "local")


async def test_p2_without_keys_a_foreign_host_is_refused(keyless: Api) -> None:
    for host in ["evil.example.org", "evil.example.org:80", "127.0.0.1.evil.example.org", "10.0.0.1", ""]:
        answer = await keyless("POST", "/v1/conversations", headers={"Host": host}, by=None)
        assert (answer.status, answer.json["type"]) == (403, "urn:rejoinder:foreign-page"), host

    assert await keyless.resources.event_store.head() == 0


async def test_without_keys_every_name_of_this_machine_is_answered(keyless: Api) -> None:
    for host in ["localhost", "LOCALHOST:1234", "127.0.0.1", "127.8.9.1:80", "[::1]", "[::1]:8400"]:
        answer = await keyless("POST", "/v1/conversations", headers={"Host": host}, by=None)
        assert answer.status == 201, host


async def test_p2_without_keys_a_foreign_page_is_refused(keyless: Api) -> None:
    for origin in [
        "https://evil.example.org",
        "null",
        "http://127.0.0.1:1",
        "http://localhost.evil.example.org",
        "https://127.0.0.1",
    ]:
        answer = await keyless("POST", "/v1/conversations", headers={"Origin": origin}, by=None)
        assert (answer.status, answer.json["type"]) == (403, "urn:rejoinder:foreign-page"), origin
        assert "Access-Control-Allow-Origin" not in answer.headers, origin

    assert await keyless.resources.event_store.head() == 0


async def test_without_keys_pages_of_this_server_and_of_friends_are_answered(keyless: Api) -> None:
    for origin in (keyless.url, "https://app.example.org"):
        assert (await keyless("POST", "/v1/conversations", headers={"Origin": origin}, by=None)).status == 201


async def test_a_friendly_page_may_ask_first_and_read_every_answer(keyless: Api) -> None:
    origin = {"Origin": "https://app.example.org"}
    asking = {**origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}

    asked = await keyless("OPTIONS", "/v1/conversations", headers=asking, by=None)
    created = await keyless("POST", "/v1/conversations", headers=origin, by=None)
    refused = await keyless("POST", "/v1/conversations", data=b"{", headers=origin, by=None)

    assert asked.status == 204
    assert "POST" in asked.headers["Access-Control-Allow-Methods"]
    assert "Content-Type" in asked.headers["Access-Control-Allow-Headers"]
    for answer in (asked, created, refused):
        assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example.org"
        assert answer.headers["Vary"] == "Origin"
    assert refused.status == 415


async def test_other_pages_are_not_let_in_by_a_question(keyless: Api, api: Api) -> None:
    asking = {"Origin": "https://evil.example.org", "Access-Control-Request-Method": "POST"}

    for server, status in ((keyless, 403), (api, 401)):
        answer = await server("OPTIONS", "/v1/conversations", headers=asking, by=None)
        assert answer.status == status
        assert "Access-Control-Allow-Origin" not in answer.headers
