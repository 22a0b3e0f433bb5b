"""Summaries over HTTP: who may see them and take them back, and what a repeat of that is told."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from domain.scope import SYSTEM
from domain.summaries import event
from domain.summary_events import SummaryRecorded
from domain.wire import encode, summary_stream_of

if TYPE_CHECKING:
    from tests.api.conftest import Api


async def summarised(api: Api, *ends: int) -> str:
    """Begin a conversation of ada's with summaries up to these seqs, each built on the one before."""
    path = await api.new_conversation()
    one, base = UUID(path.rpartition("/")[2]), None
    for seq, to_seq in enumerate(ends):
        made = event(
            SummaryRecorded,
            one,
            now=datetime.now(UTC),
            actor=SYSTEM,
            from_seq=(base or 0) + 1,
            to_seq=to_seq,
            content=f"up to {to_seq}",
            version=1,
            strategy="llm",
            tokens_before=900,
            based_on=base,
            context_seq=to_seq,
        )
        appended = await api.resources.event_store.append(summary_stream_of(one), [encode(made)], seq)
        base = to_seq
    await api.projected(appended.position)
    return path


async def test_c4_a_summary_is_taken_back_with_what_was_built_on_it_and_a_repeat_is_told_the_same(api: Api) -> None:
    path = await summarised(api, 4, 8, 12)
    key = {"Idempotency-Key": "once"}

    revoked = await api("DELETE", f"{path}/summaries/8", headers=key)
    again = await api("DELETE", f"{path}/summaries/8", headers=key)

    assert (revoked.status, revoked.json["revoked"]) == (200, [8, 12])
    assert again.json == revoked.json
    await api.projected(revoked.json["position"])
    shown = await api("GET", f"{path}/summaries?min_position={revoked.json['position']}")
    assert [(one["to_seq"], one["revoked"]) for one in shown.json["items"]] == [(4, False), (8, True), (12, True)]
    assert (await api("DELETE", f"{path}/summaries/12")).status == 404
    assert (await api("DELETE", f"{path}/summaries/4")).json["revoked"] == [4]


async def test_a_summary_that_can_never_come_is_not_accepted(api: Api) -> None:
    path = await api.new_conversation({"message": {"content": "Hello"}})
    answers = [await api("POST", f"{path}/compact", json={})]
    await api("POST", f"{path}/cancel")  # ends a turn, so that there is something
    key = {"Idempotency-Key": "once"}
    accepted = await api("POST", f"{path}/compact", json={}, headers=key)
    await api("PATCH", path, json={"settings": {"compaction": {"strategy": "none"}}})
    answers.append(await api("POST", f"{path}/compact", json={}))
    repeated = await api("POST", f"{path}/compact", json={}, headers=key)

    assert [(one.status, one.json["type"]) for one in answers] == [(409, "urn:rejoinder:nothing-to-compact")] * 2
    assert ["no turn" in one.json["detail"] for one in answers] == [True, False]
    assert "compaction.strategy is none" in answers[1].json["detail"]
    assert (accepted.status, repeated.status, repeated.json) == (202, 202, accepted.json)


@pytest.mark.parametrize("to_seq", ["3", "0", "-4", "x", "4.0", "٤", "99999999999999999999"])
async def test_what_is_no_summary_in_force_cannot_be_taken_back(api: Api, to_seq: str) -> None:
    path = await summarised(api, 4)
    assert (await api("DELETE", f"{path}/summaries/{to_seq}")).status == 404
    assert [one["revoked"] for one in (await api("GET", f"{path}/summaries")).json["items"]] == [False]


async def test_p1_summaries_of_others_are_as_if_they_were_not_there(api: Api) -> None:
    path = await summarised(api, 4)
    absent = f"/v1/conversations/{uuid4()}"
    for method, what in (("GET", "summaries"), ("DELETE", "summaries/4"), ("POST", "compact")):
        for caller in ("bob", "stranger"):
            body: dict[str, str] | None = {} if method == "POST" else None
            foreign = await api(method, f"{path}/{what}", by=caller, json=body)
            missing = await api(method, f"{absent}/{what}", by=caller, json=body)
            assert (foreign.status, foreign.raw) == (missing.status, missing.raw) == (404, missing.raw)
    assert (await api("DELETE", f"{path}/summaries/4", by="admin")).status == 200


async def test_summaries_are_listed_page_by_page_in_the_order_in_which_they_were_made(api: Api) -> None:
    path = await summarised(api, 4, 8, 12)
    first = (await api("GET", f"{path}/summaries?limit=2")).json
    second = (await api("GET", f"{path}/summaries?limit=2&cursor={first['next_cursor']}")).json
    assert [one["to_seq"] for one in (*first["items"], *second["items"])] == [4, 8, 12]
    assert [one["based_on"] for one in (*first["items"], *second["items"])] == [None, 4, 8]
    assert second["next_cursor"] is None
