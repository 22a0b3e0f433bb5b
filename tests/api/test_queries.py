"""Queries over HTTP: shapes, pages, and answers as new as asked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from pydantic import TypeAdapter

from api.http import ROUTES
from domain.decisions import Inquiry, ProposedCall, Reply
from domain.parts import text_part
from tests.api.conftest import api_keys, out_of_reach, running

if TYPE_CHECKING:
    from datetime import datetime

    from domain.conversation import Conversation
    from tests.api.conftest import Api

OF_A_CONVERSATION = ("", "/messages", "/tool-calls", "/usage", "/events")


def fits(path: str, value: Any) -> None:
    """Check an answer against the model that the documentation shows for it."""
    (route,) = [route for route in ROUTES if (route.method, route.path) == ("GET", path)]
    TypeAdapter(route.answers[200]).validate_python(value)


async def asks_before_it_emails(api: Api, *, by: str = "ada") -> tuple[str, str]:
    """Make a conversation whose agent wants to send an email; return its path and the call's id."""
    path = await api.new_conversation({"message": {"content": "email bob"}}, by=by)
    session = await api.resources.conversations.load(UUID(path.rpartition("/")[2]))
    call = ProposedCall(
        f"call_{session.conversation_id.hex}",
        "call_0",
        "send_email",
        {"to": "bob", "body": "hi"},
        "server",
        gated=True,
        inquiry=Inquiry("approval", "Send it?", timeout_s=3600),
    )

    def decide(conversation: Conversation, now: datetime) -> None:
        conversation.start_turn(now=now)
        reply = Reply(1, [text_part("I shall")], "demo", "tool_calls", conversation.version, calls=(call,))
        conversation.record_reply(1, 1, reply, now=now)

    await session.append(decide)
    await api.projected(session.position)
    return path, call.tool_call_id


async def test_r8_an_answer_is_as_new_as_asked_for(api: Api) -> None:
    created = await api("POST", "/v1/conversations", json={"message": {"content": "hello"}})
    asked = {"min_position": created.json["position"], "wait_ms": 30_000}

    for suffix in OF_A_CONVERSATION:
        found = await api("GET", created.headers["Location"] + suffix, params=asked)
        assert found.status == 200, found.raw
        fits("/v1/conversations/{conversation_id}" + suffix, found.json)
    listed = await api("GET", "/v1/conversations", params=asked)
    assert [item["id"] for item in listed.json["items"]] == [created.json["conversation_id"]]
    fits("/v1/conversations", listed.json)


async def test_r8_an_answer_that_would_be_older_is_refused(database_url: str) -> None:
    async with running(database_url, keys=api_keys(), projecting=False) as api:
        created = await api("POST", "/v1/conversations", json={"message": {"content": "hello"}})
        asked = {"min_position": created.json["position"], "wait_ms": 50}

        paths = [created.headers["Location"] + suffix for suffix in OF_A_CONVERSATION if suffix != "/events"]
        for path in (*paths, "/v1/conversations", "/v1/tool-calls"):
            refused = await api("GET", path, params=asked)
            assert (refused.status, refused.json["type"]) == (503, "urn:rejoinder:behind"), path
            assert refused.headers["Retry-After"] == "1"
        log = await api("GET", f"{paths[0]}/events", params=asked)

    assert len(log.json["items"]) == 2


async def test_r8_a_reader_who_waits_is_answered_when_the_read_model_is_there(api: Api) -> None:
    path = await api.new_conversation(projected=True)
    next_position = await api.resources.event_store.head() + 1

    waiting = asyncio.create_task(
        api("GET", f"{path}/messages", params={"min_position": next_position, "wait_ms": 30_000})
    )
    await api("POST", f"{path}/messages", json={"content": "hello"})

    assert [item["content"] for item in (await waiting).json["items"]] != []


async def test_conversations_come_in_pages_newest_activity_first(api: Api) -> None:
    paths = [await api.new_conversation({"title": str(n)}) for n in range(5)]
    await api("POST", f"{paths[0]}/messages", json={"content": "hello"})
    await api.new_conversation({"title": "another's"}, by="bob", projected=True)

    titles, cursor, pages = [], None, 0
    while cursor or not pages:
        page = (
            await api("GET", "/v1/conversations", params={"limit": 2, **({"cursor": cursor} if cursor else {})})
        ).json
        titles += [item["title"] for item in page["items"]]
        cursor, pages = page["next_cursor"], pages + 1

    assert (titles, pages) == (["0", "4", "3", "2", "1"], 3)
    ofadmin = await api("GET", "/v1/conversations", by="admin")
    assert len(ofadmin.json["items"]) == 6
    assert (await api("GET", "/v1/conversations", by="stranger")).json == {"items": [], "next_cursor": None}
    active = await api("GET", "/v1/conversations", params={"status": "active"})
    assert [item["title"] for item in active.json["items"]] == ["0"]


async def test_the_log_comes_in_pages_from_either_end(api: Api) -> None:
    path = await api.new_conversation()
    for n in range(4):
        await api("POST", f"{path}/messages", json={"content": str(n)})

    async def pages(oldest: bool) -> list[list[int]]:
        found: list[list[int]] = []
        cursor: int | None = None
        while cursor is not None or not found:
            asked = {"limit": 2, "oldest": str(oldest).lower()}
            if cursor is not None:
                asked["after" if oldest else "before"] = cursor
            page = (await api("GET", f"{path}/events", params=asked)).json
            found.append([item["seq"] for item in page["items"]])
            cursor = page["next_cursor"]
        return found

    assert await pages(oldest=True) == [[1, 2], [3, 4], [5]]
    assert await pages(oldest=False) == [[4, 5], [2, 3], [1]]
    between = await api("GET", f"{path}/events", params={"after": 1, "before": 4})
    assert [item["seq"] for item in between.json["items"]] == [2, 3]


async def test_messages_come_in_pages_from_either_end(api: Api) -> None:
    path = await api.new_conversation()
    for n in range(4):
        sent = await api("POST", f"{path}/messages", json={"content": str(n)})
    await api.projected(sent.json["position"])

    newest = (await api("GET", f"{path}/messages", params={"limit": 3})).json
    older = (await api("GET", f"{path}/messages", params={"before_seq": newest["next_cursor"]})).json
    oldest = (await api("GET", f"{path}/messages", params={"after_seq": 0, "limit": 3})).json
    newer = (await api("GET", f"{path}/messages", params={"after_seq": oldest["next_cursor"]})).json

    assert [[item["seq"] for item in page["items"]] for page in (older, newest)] == [[2], [3, 4, 5]]
    assert [[item["seq"] for item in page["items"]] for page in (oldest, newer)] == [[2, 3, 4], [5]]


async def test_the_inbox_shows_approvers_what_waits_in_the_tenant_and_takes_their_decision(api: Api) -> None:
    path, call = await asks_before_it_emails(api)

    inboxes = {
        who: await api("GET", "/v1/tool-calls", by=who) for who in ("ada", "bob", "approver", "admin", "stranger")
    }
    assert {who: [item["tool_call_id"] for item in inbox.json["items"]] for who, inbox in inboxes.items()} == {
        "ada": [call],
        "bob": [],
        "approver": [call],
        "admin": [call],
        "stranger": [],
    }
    fits("/v1/tool-calls", inboxes["ada"].json)

    misfit = {"outcome": "edit", "args": {"to": 5}}
    refused = await api("POST", f"{path}/tool-calls/{call}/resolution", json=misfit, by="approver")
    assert (refused.status, refused.json["errors"][0]["field"].partition(".")[0]) == (422, "args")
    foreign = await api("POST", f"{path}/tool-calls/{call}/resolution", json={"outcome": "approve"}, by="bob")
    assert foreign.status == 404
    later = await api("PATCH", f"{path}/tool-calls/{call}", json={"expires_at": "2100-01-01T00:00:00Z"})
    assert later.status == 200
    decided = await api(
        "POST", f"{path}/tool-calls/{call}/resolution", json={"outcome": "reject", "reason": "no"}, by="approver"
    )
    assert decided.status == 200
    again = await api("POST", f"{path}/tool-calls/{call}/resolution", json={"outcome": "approve"})
    assert (again.status, again.json["type"]) == (409, "urn:rejoinder:stale")

    await api.projected(decided.json["position"])
    (item,) = (await api("GET", f"{path}/tool-calls")).json["items"]
    assert (item["status"], item["decision"]["by"]["id"]) == ("rejected", "alan")
    assert item["expires_at"].startswith("2100-01-01T00:00:00")
    fits("/v1/conversations/{conversation_id}/tool-calls", {"items": [item], "next_cursor": None})


async def test_administrators_see_how_the_read_models_stand(api: Api) -> None:
    await api.new_conversation(projected=True)

    found = await api("GET", "/v1/projections", by="admin")

    fits("/v1/projections", found.json)
    assert {item["name"] for item in found.json["items"]} >= {"conversations", "tool_calls", "display_messages"}
    assert all((item["lag_events"], item["lag_seconds"]) == (0, 0) for item in found.json["items"])


@pytest.mark.usefixtures("patient_checks")
async def test_measurements_name_routes_by_their_templates_and_nobody(api: Api) -> None:
    path = await api.new_conversation(projected=True)
    await api("GET", f"{path}/s3cret")

    found = await api("GET", "/metrics", by="admin")
    lines = found.raw.decode().splitlines()

    assert 'rejoinder_requests_total{method="POST",route="/v1/conversations",status="201"} 1.0' in lines
    assert 'rejoinder_projection_lag_events{projection="conversations"} 0.0' in lines
    assert {f'rejoinder_ready{{part="{part}"}} 1.0' for part in ("log", "database", "projections")} <= set(lines)
    assert "rejoinder_log_position 1.0" in lines
    assert "s3cret" not in found.raw.decode()
    assert path.rpartition("/")[2] not in found.raw.decode()


async def test_a_server_without_its_database_lives_but_is_not_ready(api: Api, postgres_server: str) -> None:
    await api.new_conversation(projected=True)
    async with out_of_reach(api, postgres_server):
        alive, ready = await api("GET", "/healthz", by=None), await api("GET", "/readyz", by=None)
        metrics = await api("GET", "/metrics", by="admin")

    assert (alive.status, ready.status) == (200, 503)
    assert ready.json["unready"] == dict.fromkeys(("log", "database", "projections"), "does not answer")
    assert 'rejoinder_ready{part="log"} 0.0' in metrics.raw.decode()
