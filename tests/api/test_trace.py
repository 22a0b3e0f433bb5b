"""The trace of an event over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.api.conftest import Api


async def test_an_event_is_traced_by_its_id_or_its_seq(api: Api) -> None:
    path = await api.new_conversation({"message": {"content": "hi"}})
    said = (await api("GET", f"{path}/events")).json["items"][1]

    by_seq = await api("GET", f"{path}/trace/2")
    by_id = await api("GET", f"{path}/trace/{said['metadata']['event_id']}")

    assert by_seq.status == 200
    assert by_seq.json == by_id.json
    assert (by_seq.json["seq"], by_seq.json["ended"]) == (2, False)
    (event,) = by_seq.json["events"]
    assert (event["type"], event["text"], event["role"], event["parent"]) == ("user_msg", "hi", "event", None)


async def test_an_event_that_is_not_there_is_not_found(api: Api) -> None:
    path = await api.new_conversation()
    other = await api.new_conversation({"message": {"content": "hi"}})
    elsewhere = (await api("GET", f"{other}/events")).json["items"][1]["metadata"]["event_id"]

    for event in ("0", "2", "9" * 9, "9" * 30, elsewhere, "nothing", "%00", "-1", "1.0"):
        answer = await api("GET", f"{path}/trace/{event}")
        assert (answer.status, answer.json["type"]) == (404, "urn:rejoinder:not-found"), event
