"""The search of conversations over HTTP: as new as asked for, the caller's own, and whatever a URL can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.api.conftest import Api

SEARCH = "/v1/conversations"


async def found(api: Api, by: str = "ada", **asked: str | int) -> list[str]:
    answer = await api("GET", SEARCH, by=by, params=asked)
    assert answer.status == 200, answer.raw
    return [item["title"] for item in answer.json["items"]]


async def test_p1_r8_what_was_said_is_found_by_those_who_may_read_it(api: Api) -> None:
    for by, word in (("ada", "apples"), ("bob", "pears"), ("stranger", "plums")):
        said = {"title": by, "message": {"content": f"About {word}, in autumn"}}
        position = (await api("POST", SEARCH, by=by, json=said)).json["position"]

    newest = {"min_position": position, "wait_ms": 30_000}
    assert await found(api, q="autumn", **newest) == ["ada"]
    assert await found(api, q="pears", **newest) == []
    assert await found(api, q="Apples autumn") == ["ada"]
    assert await found(api, q="autumn", by="admin") == ["bob", "ada"]
    assert await found(api, q="autumn", status="active") == ["ada"]
    assert await found(api, q="autumn", status="ended") == []


async def test_a_page_of_what_was_found_leads_to_the_next(api: Api) -> None:
    for n in range(3):
        body = {"title": f"number {n}", "message": {"content": "same"}}
        position = (await api("POST", SEARCH, json=body)).json["position"]
    await api.projected(position)

    first = (await api("GET", SEARCH, params={"q": "same", "limit": 2})).json
    last = (await api("GET", SEARCH, params={"q": "same", "limit": 2, "cursor": first["next_cursor"]})).json
    assert [item["title"] for item in first["items"] + last["items"]] == ["number 2", "number 1", "number 0"]
    assert last["next_cursor"] is None


async def test_what_no_search_can_be_is_refused_naming_it(api: Api) -> None:
    for q in ("x" * 1001, "🦜" * 10_000, "nul \0"):
        refused = await api("GET", SEARCH, params={"q": q})
        assert refused.status == 422, q
        assert [fault["field"] for fault in refused.json["errors"]] == ["q"]
    for q in ("", "   ", '"', "' or 1=1 --", "\\", "🦜" * 500, "((((" * 250):
        assert (await api("GET", SEARCH, params={"q": q})).status == 200, q
    for raw in ("%ff%fe", "%00", "%22" * 2_500, "%", "a&q=b"):
        assert (await api("GET", f"{SEARCH}?q={raw}")).status in (200, 400, 414, 422), raw
