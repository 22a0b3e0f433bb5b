"""The audit of model calls: what was really sent, each try of it, once a part, and nothing where it is off."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg

from infra.audit_reading import request_as_of
from infra.database import Database
from tests.support import agent_tools
from tests.support.model_script import Rule, call, calls, fails, gate, hang, says
from tests.support.slack import PATIENCE_S
from tests.support.system import of_type, system_over

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.support.model_server import ModelServer, Received
    from tests.support.system import Conversation

HOOKS = """
from domain.hooks import before_audit, before_model

@before_model
def house_rules(ctx):
    return "Refunds: none." if "refund" in ctx.asked else None
"""
REDACTS = """
@before_audit
def without_names(message):
    return {**message, "content": message["content"].replace("Ada", "A.")}
"""
FAILS_TO_REDACT = """
@before_audit
def without_names(message):
    raise ValueError("Ada Lovelace")
"""


async def calls_of(conversation: Conversation, *, ended: int) -> list[dict[str, Any]]:
    """Wait until so many tries have their outcome, and return all that are kept."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            kept = (await conversation.shown("model-calls"))["items"]
            if sum(one["outcome"] is not None for one in kept) >= ended:
                return list(kept)
            await asyncio.sleep(0.02)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await holds():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)


async def of_all_purposes(conversation: Conversation) -> bool:
    return {one["purpose"] for one in await calls_of(conversation, ended=5)} == {"turn", "title", "compaction"}


async def has_summary(conversation: Conversation) -> bool:
    return bool((await conversation.shown("summaries"))["items"])


async def raw_request(conversation: Conversation, call_id: str) -> bytes:
    path = f"{conversation.system.url}{conversation.path}/model-calls/{call_id}/request"
    async with conversation.system.session.get(path) as response:
        assert response.status == 200
        assert response.content_type == "application/json"
        return await response.read()


def assert_sent(kept: bytes, received: Received) -> None:
    """What was kept is what the server received, byte for byte, but for the order of the fields and the transport's."""
    body = received.body
    request = json.loads(kept)
    assert request.pop("model") == f"openai/{body['model']}"
    assert {name: body[name] for name in request} == request
    assert body.keys() - request.keys() <= {"model", "stream", "stream_options"}
    for field in ("messages", "tools"):
        if field in body:
            start = kept.index(f'"{field}":'.encode())
            piece = json.dumps(body[field], ensure_ascii=False, separators=(",", ":")).encode()
            assert kept[start:].startswith(f'"{field}":'.encode() + piece)
            assert f'"{field}":'.encode() + piece in received.raw


async def test_c6_each_try_of_a_call_is_kept_with_the_exact_request(
    database_url: str, model_server: ModelServer, tmp_path: Path
) -> None:
    agent_tools.forget()
    (tmp_path / "mine.py").write_text(HOOKS)
    model_server.expect(
        fails(500),
        says("Ä 🦜 <&>", calls(call("add", {"a": 1, "b": 2}))),
        says("done"),
        fails(400, message="no"),
        says("So", hang()),
    )
    async with system_over(database_url, model_server, audit="on", hooks=(str(tmp_path / "mine.py"),)) as system:
        conversation = await system.start("a refund \u00e9\u2028, please", model_params={"temperature": 0.5, "seed": 7})
        await conversation.turn_ends()
        await conversation.say("again")
        await conversation.turn_ends(2)
        await conversation.say("stop")
        await model_server.requests(5)
        await system.post(f"{conversation.path}/cancel", {}, status=202)
        kept = await calls_of(conversation, ended=5)
        assert [(one["turn"], one["step"], one["attempt"], one["try"], one["outcome"]) for one in kept] == [
            (1, 1, 1, 1, "failed"),
            (1, 1, 1, 2, "ok"),
            (1, 2, 1, 1, "ok"),
            (2, 1, 1, 1, "failed"),
            (3, 1, 1, 1, "cancelled"),
        ]
        assert [one["reason"] for one in kept] == ["unavailable", None, None, "bad_request", None]
        assert [one["finish_reason"] for one in kept] == [None, "tool_calls", "stop", None, None]
        assert {one["purpose"] for one in kept} == {"turn"}
        assert kept[1]["usage"]["input_tokens"] > 0
        assert all(one["latency_ms"] >= 0 for one in kept)
        assert [[one["hook"] for one in each["injected"]] for each in kept] == [["house_rules"]] * 3 + [[], []]

        requests = [await raw_request(conversation, one["id"]) for one in kept]
        for request, received in zip(requests, model_server.received, strict=True):
            assert_sent(request, received)
        assert b"Refunds: none." in requests[0]

        replies = of_type(await conversation.events(), "assistant_msg")
        assert [one["context_seq"] for one in kept][1:3] == [one["context_seq"] for one in replies]
        async with Database(database_url) as database, database.connection() as connection:
            sent = await request_as_of(connection, UUID(conversation.id), replies[0]["context_seq"])
        assert sent is not None
        assert sent.raw == requests[1]

        pages, cursor = [], ""
        while cursor is not None:
            page = await system.get(f"{conversation.path}/model-calls?limit=2{cursor and '&cursor='}{cursor}")
            pages.append(page["items"])
            cursor = page["next_cursor"]
        assert [len(page) for page in pages] == [2, 2, 1]
        assert [one["id"] for page in pages for one in page] == [one["id"] for one in kept]
        absent = f"{conversation.path}/model-calls/{conversation.id}/request"
        await system.get(absent, status=404)

    with psycopg.connect(database_url) as connection:
        bodies = [body for (body,) in connection.execute("select body from audit_parts").fetchall()]
        assert len(bodies) == len(set(bodies))
        stored = connection.execute("select sum(cardinality(messages)) from model_calls").fetchone()
    assert stored is not None
    assert len(bodies) < int(stored[0])


async def test_c6_equal_parts_are_stored_once_across_conversations_and_gone_with_the_last(
    database_url: str, model_server: ModelServer
) -> None:
    async with system_over(database_url, model_server, audit="on") as system:
        for _ in range(2):
            conversation = await system.start("the same", system_prompt="Be kind.")
            await conversation.turn_ends()
            await calls_of(conversation, ended=1)
    with psycopg.connect(database_url) as connection:
        assert connection.execute("select count(*) from model_calls").fetchone() == (2,)
        assert connection.execute("select count(*) from audit_parts").fetchone() == (4,)
        assert connection.execute("select count(*) from audit_uses").fetchone() == (8,)


async def test_c6_without_the_audit_there_are_no_rows(database_url: str, model_server: ModelServer) -> None:
    async with system_over(database_url, model_server) as system:
        conversation = await system.start("hello")
        await conversation.turn_ends()
        assert await conversation.shown("model-calls") == {"items": [], "next_cursor": None}
    with psycopg.connect(database_url) as connection:
        for table in ("model_calls", "audit_parts", "audit_uses"):
            assert connection.execute(f"select count(*) from {table}".encode()).fetchone() == (0,)


async def test_c6_calls_for_summaries_and_titles_are_kept_too(database_url: str, model_server: ModelServer) -> None:
    agent_tools.forget()
    model_server.rule(Rule(answer=says("## Goal\nA trip."), any_text="^You summarise"), Rule(answer=says("Yes.")))
    async with system_over(database_url, model_server, audit="on", compaction_model="openai/cheap") as system:
        settings: dict[str, Any] = {"compaction": {"budget_tokens": 800, "keep_recent_tokens": 400}, "titles": True}
        conversation = await system.start(**settings)
        for turn in range(3):
            await conversation.say(f"{turn} " + "word " * 200)
            await conversation.turn_ends(turn + 1)
        await until(lambda: of_all_purposes(conversation))
        await until(lambda: has_summary(conversation))
        await conversation.say("and now?")
        await conversation.turn_ends(4)
        kept = await calls_of(conversation, ended=6)
    assert [one["purpose"] for one in kept][:4] == ["turn"] * 4
    assert {one["model"] for one in kept if one["purpose"] != "turn"} == {"openai/cheap"}
    assert [one["summary"] is not None for one in kept][:4] == [False, False, False, True]
    assert kept[3]["summary"]["version"] == 1


async def test_c6_hooks_redact_what_is_kept_and_what_they_fail_on_is_not(
    database_url: str, model_server: ModelServer, tmp_path: Path
) -> None:
    for number, redacting in enumerate((REDACTS, FAILS_TO_REDACT)):
        file = tmp_path / f"redacting{number}.py"
        file.write_text(HOOKS + redacting)
        async with system_over(database_url, model_server, audit="on", hooks=(str(file),)) as system:
            conversation = await system.start("I am Ada Lovelace", hooks=[])
            await conversation.turn_ends()
            [kept] = await calls_of(conversation, ended=1)
            request = await raw_request(conversation, kept["id"])
        assert kept["redacted"]
        assert b"Ada" not in request
        expected = "I am A. Lovelace" if number == 0 else "[Not kept: the hook without_names failed (ValueError).]"
        assert json.loads(request)["messages"][-1]["content"] == expected
        assert "I am Ada Lovelace" in model_server.received[-1].raw.decode()
    with psycopg.connect(database_url) as connection:
        assert connection.execute("select count(*) from audit_parts where body like '%Ada%'").fetchone() == (0,)


async def test_c8_looking_back_shows_what_each_reply_was_really_made_of(
    database_url: str, model_server: ModelServer, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(HOOKS)
    model_server.expect(says("Half a ", gate("go"), "refund."), says("All of it."))
    async with system_over(database_url, model_server, audit="on", hooks=(str(tmp_path / "mine.py"),)) as system:
        conversation = await system.start("a refund!")
        await model_server.requests(1)
        await conversation.say("all of it!", when_busy="steer")
        model_server.open("go")
        events = await conversation.turn_ends()
        await calls_of(conversation, ended=2)
        replies = of_type(events, "assistant_msg")
        states = [await system.get(f"{conversation.path}/state?at={one['context_seq']}") for one in replies]
    seen = [state["working_set"] for state in states]
    assert [one["exact"] for one in seen] == [True, True]
    assert [one["messages"] for one in seen] == [one.body["messages"] for one in model_server.received]
    assert ["all of it!" in json.dumps(one["messages"]) for one in seen] == [False, True]
