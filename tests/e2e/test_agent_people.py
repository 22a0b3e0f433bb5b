"""People and clients in the agent's turns, from outside: approvals, edits, answers, races, the inbox."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.support import agent_tools
from tests.support.model_script import call, calls, says
from tests.support.system import Conversation, of_type, system_over, types

if TYPE_CHECKING:
    from tests.support.model_server import ModelServer
    from tests.support.system import System

EMAIL = {"to": "ada@example.org", "body": "hi"}


async def waiting_email(system: System, model_server: ModelServer) -> tuple[Conversation, str]:
    """Start a conversation whose model wants to send an email."""
    model_server.expect(says(calls(call("send_email", EMAIL))))
    conversation = await system.start("Write to Ada")
    (suspension,) = of_type(await conversation.suspends(), "suspension")
    return conversation, suspension["tool_call_id"]


async def test_h1_a_gated_tool_runs_after_approval_only(system: System, model_server: ModelServer) -> None:
    conversation, tool_call_id = await waiting_email(system, model_server)
    assert agent_tools.runs == []
    await conversation.resolve(tool_call_id, "approve")
    events = await conversation.turn_ends()
    as_admin = {"user": "local", "roles": ["admin"]}
    assert agent_tools.runs == [{"tool": "send_email", "id": tool_call_id, "args": EMAIL, **as_admin}]
    assert types(events)[-5:] == ["suspension", "resolution", "tool_result", "assistant_msg", "turn_ended"]


async def test_h1_a_rejected_tool_never_runs_and_the_model_reads_the_reason(
    system: System, model_server: ModelServer
) -> None:
    conversation, tool_call_id = await waiting_email(system, model_server)
    await conversation.resolve(tool_call_id, "reject", reason="wrong address")
    await conversation.turn_ends()
    assert agent_tools.runs == []
    assert "wrong address" in str(model_server.received[1].body["messages"][-1]["content"])


async def test_h2_one_of_many_racing_resolutions_wins_across_processes(
    database_url: str, model_server: ModelServer, system: System
) -> None:
    conversation, tool_call_id = await waiting_email(system, model_server)
    async with system_over(database_url, model_server, ["api"]) as other:
        elsewhere = Conversation(other, conversation.id)

        async def decide(where: Conversation, outcome: str) -> int:
            path = f"{where.system.url}{where.path}/tool-calls/{tool_call_id}/resolution"
            async with where.system.session.post(path, json={"outcome": outcome}) as response:
                body = await response.json()
                assert response.status == 200 or body["type"] == "urn:rejoinder:stale"
                return response.status

        races = [decide(where, outcome) for outcome in ("approve", "reject") for where in (conversation, elsewhere)]
        statuses = await asyncio.gather(*races, *[decide(conversation, "approve") for _ in range(8)])
    assert sorted(statuses) == [200] + [409] * 11
    events = await conversation.turn_ends()
    assert types(events).count("resolution") == types(events).count("tool_result") == 1
    unknown = await conversation.resolve("call_" + "0" * 32, "approve", status=409)
    assert unknown["type"] == "urn:rejoinder:stale"
    assert (await conversation.resolve(tool_call_id, "approve", status=409))["type"] == "urn:rejoinder:stale"
    assert types(await conversation.events()) == types(events)


async def test_h5_an_edit_is_checked_and_kept_beside_the_original(system: System, model_server: ModelServer) -> None:
    conversation, tool_call_id = await waiting_email(system, model_server)
    wrong = await conversation.resolve(tool_call_id, "edit", args={"to": 7, "body": "hi"}, status=422)
    assert "args.to" in str(wrong)
    edited = {"to": "ben@example.org", "body": "hi"}
    await conversation.resolve(tool_call_id, "edit", args=edited, reason="not Ada")
    await conversation.turn_ends()
    assert [run["args"] for run in agent_tools.runs] == [edited]
    (row,) = (await conversation.shown("tool-calls"))["items"]
    assert (row["args"], row["edited_args"]) == (EMAIL, edited)
    assert row["decision"] | {"at": ""} == {
        "outcome": "edited",
        "by": {"kind": "user", "id": "local"},
        "reason": "not Ada",
        "at": "",
    }
    assert "ben@example.org" in str(model_server.received[1].body["messages"][-1]["content"])


async def test_h6_a_resolution_waits_for_no_tool_and_no_model(system: System, model_server: ModelServer) -> None:
    both = calls(call("send_email", EMAIL, index=0), call("wait_for", {"gate": "slow"}, index=1))
    model_server.expect(says(both))
    conversation = await system.start("Go")
    (suspension,) = of_type(await conversation.suspends(), "suspension")
    receipt = await conversation.resolve(suspension["tool_call_id"], "approve")
    log = await conversation.events()
    assert log[receipt["seq"] - 1]["type"] == "resolution"
    assert len(model_server.received) == 1
    agent_tools.gates["slow"].set()
    await conversation.turn_ends()


async def test_h7_a_mixed_batch_calls_the_model_after_all_results_and_awaits_input_once_only_people_are_waited_for(
    system: System, model_server: ModelServer
) -> None:
    batch = calls(
        call("ask_user", {"question": "Which?"}, index=0),
        call("wait_for", {"gate": "slow"}, index=1),
        call("add", {"a": 1, "b": 1}, index=2),
    )
    model_server.expect(says(batch), says("All done"))
    conversation = await system.start("Go")
    await conversation.until(lambda seen: "tool_result" in types(seen))
    assert (await conversation.shown())["status"] == "active"
    agent_tools.gates["slow"].set()
    events = await conversation.until(lambda seen: types(seen).count("tool_result") == 2)
    row = await conversation.shown()
    (question,) = of_type(events, "suspension")
    assert (row["status"], row["fsm_state"]["state"]) == ("suspended", "awaiting_input")
    assert list(row["fsm_state"]["pending"]) == [question["tool_call_id"]]
    assert len(model_server.received) == 1
    await conversation.resolve(question["tool_call_id"], "answer", answer="The blue one")
    await conversation.turn_ends()
    row = await conversation.shown()
    assert (row["status"], row["fsm_state"]["state"], row["fsm_state"]["pending"]) == ("idle", "idle", {})
    assert len(model_server.received) == 2


async def test_h8_a_gated_client_tool_waits_twice_on_one_id(system: System, model_server: ModelServer) -> None:
    model_server.expect(says(calls(call("locate"))))
    conversation = await system.start("Where am I?")
    (approval,) = of_type(await conversation.suspends(), "suspension")
    tool_call_id = approval["tool_call_id"]
    too_early = await conversation.resolve(tool_call_id, "answer", answer={"lat": 1.0}, status=409)
    assert too_early["type"] == "urn:rejoinder:stale"
    await conversation.resolve(tool_call_id, "approve")
    suspensions = of_type(await conversation.suspends(2), "suspension")
    assert [suspension["kind"] for suspension in suspensions] == ["approval", "client"]
    assert {suspension["tool_call_id"] for suspension in suspensions} == {tool_call_id}
    await conversation.resolve(tool_call_id, "answer", answer={"lat": "north"}, status=422)
    await conversation.resolve(tool_call_id, "answer", answer={"lat": 52.5, "lon": 13.4})
    events = await conversation.turn_ends()
    assert [result["status"] for result in of_type(events, "tool_result")] == ["ok"]


async def test_h9_an_unanswered_call_expires_and_the_turn_goes_on(system: System, model_server: ModelServer) -> None:
    model_server.expect(says(calls(call("send_email", EMAIL))))
    conversation = await system.start("Write to Ada", approval_timeout_s=0.3)
    events = await conversation.turn_ends()
    tool_call_id = of_type(events, "tool_call")[0]["tool_call_id"]
    (resolution,) = of_type(events, "resolution")
    assert (resolution["outcome"], resolution["by"]["kind"]) == ("expired", "system")
    assert of_type(events, "tool_result")[0]["status"] == "expired"
    late = await conversation.resolve(tool_call_id, "approve", status=409)
    assert late["type"] == "urn:rejoinder:stale"
    assert agent_tools.runs == []


async def test_h10_another_deadline_replaces_the_first(system: System, model_server: ModelServer) -> None:
    model_server.expect(says(calls(call("send_email", EMAIL))))
    conversation = await system.start("Write to Ada", approval_timeout_s=60)
    events = await conversation.suspends()
    tool_call_id = of_type(events, "suspension")[0]["tool_call_id"]
    path = f"{system.url}{conversation.path}/tool-calls/{tool_call_id}"
    async with system.session.patch(path, json={"expires_at": None}) as response:
        assert response.status == 200, await response.text()
    events = await conversation.suspends(2)
    assert "expires_at" not in of_type(events, "suspension")[1]
    await conversation.resolve(tool_call_id, "approve")
    assert of_type(await conversation.turn_ends(), "turn_ended")[0]["outcome"] == "completed"


async def test_the_inbox_shows_what_waits_across_conversations(system: System, model_server: ModelServer) -> None:
    found: list[tuple[Conversation, str]] = [await waiting_email(system, model_server) for _ in range(2)]
    position = (await found[-1][0].events())[-1]["position"]
    inbox = (await system.get(f"/v1/tool-calls?status=pending&min_position={position}"))["items"]
    assert {row["tool_call_id"] for row in inbox} == {tool_call_id for _, tool_call_id in found}
    assert {row["conversation_id"] for row in inbox} == {one.id for one, _ in found}
    for conversation, tool_call_id in found:
        await conversation.resolve(tool_call_id, "reject")
        await conversation.turn_ends()
