"""Operating the read models over HTTP: pause, resume, what is parked, retry, and queries that ask for fresh rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import TypeAdapter

from api.http import ROUTES
from api.pages import PageOf
from api.routes.operations import ParkedItem, RetriedProjection
from projections.catalog import PROJECTIONS
from projections.display_messages import DISPLAY_MESSAGES
from tests.api.conftest import Api, api_keys, running
from tests.support.poison import Poisoned

if TYPE_CHECKING:
    from tests.api.conftest import Answer


async def fresh(api: Api, path: str, said: Answer, *, by: str = "ada", wait_ms: int = 30_000) -> Answer:
    """Ask for what is as new as a command's answer."""
    return await api("GET", path, by=by, params={"min_position": said.json["position"], "wait_ms": wait_ms})


async def standing(api: Api, name: str) -> dict[str, Any]:
    items = (await api("GET", "/v1/projections", by="admin")).json["items"]
    return next(item for item in items if item["name"] == name)


@pytest.mark.usefixtures("patient_checks")
async def test_r8_a_paused_read_model_shows_its_lag_and_claims_nothing_newer(api: Api) -> None:
    path = await api.new_conversation(projected=True)
    paused = await api("POST", "/v1/projections/display_messages/pause", by="admin")
    assert (paused.status, paused.json["status"]) == (200, "paused")

    said = await api("POST", f"{path}/messages", json={"content": "Hello"})
    assert (await fresh(api, path, said)).json["last_seq"] == 2
    behind = await fresh(api, f"{path}/messages", said, wait_ms=100)
    assert (behind.status, behind.json["type"], behind.headers["Retry-After"]) == (503, "urn:rejoinder:paused", "1")
    assert "display_messages is paused" in behind.json["detail"]
    item = await standing(api, "display_messages")
    assert (item["status"], item["lag_events"]) == ("paused", 1)
    assert item["lag_seconds"] > 0
    ready = await api("GET", "/readyz", by=None)
    assert (ready.status, ready.json["degraded"]) == (200, {"display_messages": "paused"})

    resumed = await api("POST", "/v1/projections/display_messages/resume", by="admin")
    assert (resumed.status, resumed.json["status"]) == (200, "running")
    shown = await fresh(api, f"{path}/messages", said)
    assert [item["seq"] for item in shown.json["items"]] == [2]
    again = await api("POST", "/v1/projections/display_messages/resume", by="admin")
    assert (again.status, again.json["status"]) == (200, "running")


@pytest.mark.usefixtures("patient_checks")
async def test_r6_what_is_parked_is_shown_refused_to_who_wants_it_fresh_and_retried(database_url: str) -> None:
    poisoned = Poisoned(DISPLAY_MESSAGES)
    projections = tuple(poisoned.projection if one is DISPLAY_MESSAGES else one for one in PROJECTIONS)
    async with running(database_url, keys=api_keys(), projections=projections) as api:
        path, other, foreign = [await api.new_conversation(by=who) for who in ("ada", "ada", "stranger")]
        old = await api("POST", f"{path}/messages", json={"content": "Hello"})
        await fresh(api, f"{path}/messages", old)
        said = await api("POST", f"{path}/messages", json={"content": "poison s3cret"})
        said_there = await api("POST", f"{other}/messages", json={"content": "Hello"})
        said_far = await api("POST", f"{foreign}/messages", json={"content": "Hello"}, by="stranger")

        refused = await fresh(api, f"{path}/messages", said)
        assert (refused.status, refused.json["type"]) == (503, "urn:rejoinder:parked")
        assert (await fresh(api, f"{path}/messages", old)).status == 200
        assert [one["seq"] for one in (await api("GET", f"{path}/messages")).json["items"]] == [2]
        assert (await fresh(api, path, said)).json["last_seq"] == 3
        assert (await fresh(api, f"{other}/messages", said_there)).status == 200
        assert (await fresh(api, f"{foreign}/messages", said_far, by="stranger")).status == 200

        listed = await api("GET", "/v1/projections/display_messages/parked", by="admin")
        TypeAdapter(PageOf[ParkedItem]).validate_python(listed.json)
        [item] = listed.json["items"]
        assert (item["conversation_id"], item["seq"], item["type"]) == (path.rpartition("/")[2], 3, "user_msg")
        assert (item["waiting"], item["attempts"], item["position"]) == (1, 4, said.json["position"])
        assert item["error"].startswith("ValueError: cannot take …")
        assert "s3cret" not in listed.raw.decode()
        elsewhere = await api("GET", "/v1/projections/display_messages/parked", by="stranger")
        assert elsewhere.json == {"items": [], "next_cursor": None}

        assert (await standing(api, "display_messages"))["parked"] == 1
        ready = await api("GET", "/readyz", by=None)
        assert (ready.status, ready.json["degraded"]) == (200, {"display_messages": "parked conversations: 1"})
        metrics = (await api("GET", "/metrics", by="admin")).raw.decode().splitlines()
        assert 'rejoinder_projection_parked{projection="display_messages"} 1.0' in metrics
        assert 'rejoinder_projection_status{projection="display_messages",status="running"} 1.0' in metrics

        retry = "/v1/projections/display_messages/retry"
        tried = (await api("POST", retry, by="admin")).json
        assert (tried["retried"], tried["parked"]) == (0, 1)
        poisoned.broken = False
        retried = (await api("POST", retry, by="admin")).json
        RetriedProjection.model_validate(retried)
        assert (retried["retried"], retried["parked"], retried["error"]) == (1, 0, None)
        shown = await fresh(api, f"{path}/messages", said)
        assert [one["seq"] for one in shown.json["items"]] == [2, 3]


async def test_r8_a_list_is_refused_while_something_in_it_is_parked_but_only_to_who_may_see_that(
    database_url: str,
) -> None:
    poisoned = Poisoned(next(one for one in PROJECTIONS if one.name == "tool_calls"))
    projections = tuple(poisoned.projection if one.name == "tool_calls" else one for one in PROJECTIONS)
    async with running(database_url, keys=api_keys(), projections=projections) as api:
        path = await api.new_conversation()
        said = await api("POST", f"{path}/messages", json={"content": "poison"})
        callers = ("ada", "approver", "bob", "stranger")
        inboxes = {who: await fresh(api, "/v1/tool-calls", said, by=who) for who in callers}
        assert {who: answer.status for who, answer in inboxes.items()} == {
            "ada": 503,
            "approver": 503,
            "bob": 200,
            "stranger": 200,
        }
        assert inboxes["ada"].json["type"] == "urn:rejoinder:parked"
        assert (await api("GET", "/v1/tool-calls")).status == 200


async def test_operations_on_a_read_model_that_there_is_not_are_not_found(api: Api) -> None:
    operations = [route for route in ROUTES if "/projections/{name}" in route.path]
    assert len(operations) >= 4
    for route in operations:
        path = route.path.format(name="nothing")
        assert (await api(route.method, path, by="admin", json={})).status == 404, path
