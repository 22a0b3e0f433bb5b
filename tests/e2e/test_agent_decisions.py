"""Who decides, in which order and until when, from outside: people with keys, and clients that follow the stream."""

from __future__ import annotations

import hashlib
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.support import agent_tools
from tests.support.model_script import call, calls, says
from tests.support.system import Conversation, System, of_type, system_over, types

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.model_server import ModelServer

PEOPLE = {"ada": [], "ben": ["approver"], "eve": []}
EMAIL = {"to": "ada@example.org", "body": "hi"}


@asynccontextmanager
async def people(database_url: str, model_server: ModelServer, keys: Path) -> AsyncIterator[dict[str, System]]:
    """Run the whole system with keys, and return it as each person reaches it."""
    entries = [
        {"key_sha256": hashlib.sha256(name.encode()).hexdigest(), "tenant": "acme", "user": name, "roles": roles}
        for name, roles in PEOPLE.items()
    ]
    keys.write_text(json.dumps(entries))
    agent_tools.forget()
    async with system_over(database_url, model_server, api_keys_file=keys) as system:
        sessions = {name: aiohttp.ClientSession(headers={"Authorization": f"Bearer {name}"}) for name in PEOPLE}
        try:
            yield {name: System(system.url, session) for name, session in sessions.items()}
        finally:
            for session in sessions.values():
                await session.close()


async def test_h11_an_approver_who_is_not_the_owner_finds_and_decides_and_the_tool_runs_as_him(
    database_url: str, model_server: ModelServer, tmp_path: Path
) -> None:
    batch = calls(call("send_email", EMAIL, index=0), call("add", {"a": 1, "b": 1}, index=1))
    model_server.expect(says(batch))
    async with people(database_url, model_server, tmp_path / "keys.json") as by:
        conversation = await by["ada"].start("Write to Ada")
        events = await conversation.suspends()
        position = events[-1]["position"]
        inboxes = {
            name: [row["name"] for row in (await by[name].get(f"/v1/tool-calls?min_position={position}"))["items"]]
            for name in PEOPLE
        }
        assert inboxes == {"ada": ["send_email"], "ben": ["send_email"], "eve": []}
        (asked,) = (await by["ben"].get("/v1/tool-calls"))["items"]
        assert asked["args"] == EMAIL

        path = f"/v1/conversations/{asked['conversation_id']}/tool-calls/{asked['tool_call_id']}"
        await by["eve"].post(f"{path}/resolution", {"outcome": "approve"}, status=404)
        async with by["eve"].session.patch(f"{by['eve'].url}{path}", json={"expires_at": None}) as response:
            assert response.status == 404
        later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        async with by["ben"].session.patch(f"{by['ben'].url}{path}", json={"expires_at": later}) as response:
            assert response.status == 200, await response.text()
        edited = EMAIL | {"body": "hello"}
        receipt = await by["ben"].post(
            f"{path}/resolution", {"outcome": "edit", "args": edited, "reason": "too short"}, status=200
        )
        assert (await by["ben"].get(f"/v1/tool-calls?min_position={receipt['position']}"))["items"] == []

        await conversation.turn_ends()
        assert {run["tool"]: run["user"] for run in agent_tools.runs} == {"add": "ada", "send_email": "ben"}
        assert {run["tool"]: run["roles"] for run in agent_tools.runs} == {"add": [], "send_email": ["approver"]}
        rows = (await conversation.shown("tool-calls"))["items"]
        (row,) = [row for row in rows if row["name"] == "send_email"]
        assert (row["status"], row["args"], row["edited_args"]) == ("resolved", EMAIL, edited)
        assert row["decision"]["by"] == {"kind": "user", "id": "ben"}
        assert (row["decision"]["outcome"], row["decision"]["reason"]) == ("edited", "too short")
        assert row["decision"]["at"] <= row["resolved_at"]
        said = model_server.received[-1].body["messages"]
        ran = next(
            message["content"] for message in said if message["role"] == "tool" and "edited" in message["content"]
        )
        assert '"body":"hello"' in ran, "the model is told which arguments ran"


async def test_h3_three_decisions_in_any_order_in_other_processes_land_on_their_own_calls(
    database_url: str, model_server: ModelServer
) -> None:
    emails = [{"to": f"{name}@example.org", "body": "hi"} for name in ("first", "second", "third")]
    model_server.expect(says(calls(*[call("send_email", args, index=n) for n, args in enumerate(emails)])))
    agent_tools.forget()
    async with system_over(database_url, model_server) as system:
        conversation = await system.start("Write to them all")
        await conversation.suspends(3)
        first, second, third = (
            suspension["tool_call_id"] for suspension in of_type(await conversation.events(), "suspension")
        )
        await conversation.resolve(third, "approve")
        await conversation.until(lambda seen: types(seen).count("tool_result") == 1)
    assert len(model_server.received) == 1
    async with system_over(database_url, model_server, ["api"]) as system:
        conversation = Conversation(system, conversation.id)
        await conversation.resolve(first, "reject", reason="not that one")
    async with system_over(database_url, model_server) as system:
        conversation = Conversation(system, conversation.id)
        await conversation.resolve(second, "edit", args=emails[1] | {"body": "hello"})
        events = await conversation.turn_ends()
    statuses = {result["tool_call_id"]: result["status"] for result in of_type(events, "tool_result")}
    assert statuses == {first: "rejected", second: "ok", third: "ok"}
    assert {run["id"]: run["args"]["body"] for run in agent_tools.runs} == {third: "hi", second: "hello"}
    assert len(model_server.received) == 2
    assert types(events).count("turn_resumed") == 0


async def test_h8_a_client_that_follows_the_stream_answers_what_it_is_asked(
    system: System, model_server: ModelServer
) -> None:
    model_server.expect(says(calls(call("locate"))), says("You are in Berlin"))
    conversation = await system.start("Where am I?")
    asked: list[str] = []
    async for event in conversation.stream():
        if event["type"] == "suspension":
            asked.append(event["data"]["kind"])
            answers: dict[str, dict[str, Any]] = {"approval": {}, "client": {"answer": {"lat": 52.5, "lon": 13.4}}}
            outcome = {"approval": "approve", "client": "answer"}[asked[-1]]
            await conversation.resolve(event["data"]["tool_call_id"], outcome, **answers[asked[-1]])
        if event["type"] == "turn_ended":
            break
    assert asked == ["approval", "client"]
    events = await conversation.events()
    assert types(events)[-7:] == [
        "suspension",
        "resolution",
        "suspension",
        "resolution",
        "tool_result",
        "assistant_msg",
        "turn_ended",
    ]
    assert json.loads(model_server.received[1].body["messages"][-1]["content"]) == {"lat": 52.5, "lon": 13.4}
    (row,) = (await conversation.shown("tool-calls"))["items"]
    assert (row["kind"], row["status"], row["decision"]["outcome"]) == ("client", "resolved", "approved")


async def test_h2_h10_only_what_waits_can_be_put_off_and_only_into_the_future(
    system: System, model_server: ModelServer
) -> None:
    model_server.expect(says(calls(call("send_email", EMAIL), call("add", {"a": 1, "b": 1}, index=1))))
    conversation = await system.start("Go")
    await conversation.suspends()
    events = await conversation.until(lambda seen: "tool_result" in types(seen))
    email, add = (called["tool_call_id"] for called in of_type(events, "tool_call"))

    async def put_off(tool_call_id: str, expires_at: Any) -> tuple[int, str]:
        path = f"{system.url}{conversation.path}/tool-calls/{tool_call_id}"
        async with system.session.patch(path, json={"expires_at": expires_at}) as response:
            return response.status, (await response.json()).get("type", "")

    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert await put_off(email, "2020-01-01T00:00:00Z") == (422, "urn:rejoinder:invalid")
    assert await put_off(email, "2999-01-01T00:00:00") == (422, "urn:rejoinder:invalid")
    assert await put_off(email, "soon") == (422, "urn:rejoinder:invalid")
    assert await put_off(add, tomorrow) == (409, "urn:rejoinder:stale")
    assert await put_off("call_" + "0" * 32, tomorrow) == (409, "urn:rejoinder:stale")
    assert types(await conversation.events()).count("suspension") == 1
    assert (await put_off(email, tomorrow))[0] == 200
    await conversation.resolve(email, "reject")
    assert await put_off(email, tomorrow) == (409, "urn:rejoinder:stale")
    await conversation.turn_ends()


async def test_h5_an_answer_is_checked_against_what_the_tool_returns(system: System, model_server: ModelServer) -> None:
    model_server.expect(says(calls(call("ask_user", {"question": "Which?"}))))
    conversation = await system.start("Ask me")
    (suspension,) = of_type(await conversation.suspends(), "suspension")
    asked = suspension["tool_call_id"]
    assert (suspension["kind"], suspension["prompt"]) == ("elicitation", "Which?")
    problem = await conversation.resolve(asked, "answer", answer={"not": "text"}, status=422)
    assert [fault["field"] for fault in problem["errors"]] == ["answer"]
    await conversation.resolve(asked, "answer", status=422)
    await conversation.resolve(asked, "approve", answer="x", status=422)
    for wrong in ("approve", "edit"):
        body: dict[str, Any] = {"args": {}} if wrong == "edit" else {}
        assert (await conversation.resolve(asked, wrong, **body, status=409))["type"] == "urn:rejoinder:stale"
    await conversation.resolve(asked, "reject", reason="Ask somebody else")
    await conversation.turn_ends()
    assert "Ask somebody else" in model_server.received[1].body["messages"][-1]["content"]
