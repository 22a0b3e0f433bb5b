"""Rejoinder on EventStoreDB, each role a process of its own, while the log server is killed, silent and away.

The server is the double, stand-alone over a file. ``REJOINDER_TEST_OUTAGE_S`` (default 6) is how long it stays away;
with 30 a request finds out that nobody waits for it that long.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import aiohttp
import pytest

from infra.eventstoredb import EventStoreDBEventStore
from tests.contract.samples import events as some_events
from tests.support import noted_tools
from tests.support.eventstoredb import Fault
from tests.support.eventstoredb.process import DoubleProcess
from tests.support.long_conversations import AGREES, is_summary, summaries, talked
from tests.support.model_script import Rule, call, calls, gate, says, text_of
from tests.support.postgres import fresh_database
from tests.support.program import ROOT, Ended, Program
from tests.support.remote_model_server import RemoteModelServer
from tests.support.slack import PATIENCE_S
from tests.support.system import Conversation, System, of_type, types

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
    from pathlib import Path

    from tests.support.system import Event

OUTAGE_S = float(os.environ.get("REJOINDER_TEST_OUTAGE_S", "6"))
PREFIX = "ours-"
EMAIL = {"to": "ada@example.org"}


@dataclass(frozen=True)
class Nodes:
    """The log server, and where the processes around it listen; `settings` are what they were started with."""

    log: DoubleProcess
    url: str
    model_url: str
    folder: Path
    settings: dict[str, object]

    def restart_log(self) -> None:
        self.log.kill()
        self.log.start()


@pytest.fixture(scope="module")
def nodes(postgres_server: str, template_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """An api, a projector, a worker, a model server and the log server, each a process, for all tests here."""
    folder = tmp_path_factory.mktemp("nodes")
    with ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setenv(noted_tools.FOLDER, str(folder))
        database_url = stack.enter_context(fresh_database(postgres_server, template_database))
        log = stack.enter_context(DoubleProcess(folder / "log"))
        model = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "tests.support.model_server"], cwd=ROOT, stdout=subprocess.PIPE, text=True
            )
        )
        stack.callback(model.kill)
        assert model.stdout is not None
        model_url = model.stdout.readline().strip()
        settings: dict[str, object] = {
            "database_url": database_url,
            "event_store": log.uri,
            "stream_prefix": PREFIX,
            "model": "openai/scripted",
            "model_api_base": model_url,
            "model_api_key": "sk-scripted",
            "tools": "tests.support.noted_tools",
            "data_dir": folder,
        }
        roles = [
            stack.enter_context(Program("serve", "--role", role, "--port", "0", **settings))
            for role in ("api", "projector", "worker")
        ]
        url = roles[0].url()
        for role in roles[1:]:
            role.wait_for("ready")
        yield Nodes(log, url, model_url, folder, settings)


@pytest.fixture
async def system(nodes: Nodes) -> AsyncIterator[System]:
    async with aiohttp.ClientSession() as session:
        yield System(nodes.url, session)


@pytest.fixture
async def model(nodes: Nodes) -> AsyncIterator[RemoteModelServer]:
    async with aiohttp.ClientSession() as session:
        model = RemoteModelServer(nodes.model_url, session)
        await model.reset()
        yield model


async def follow(conversation: Conversation, holds: Callable[[list[Event]], bool]) -> list[Event]:
    """Follow the stream, and take it up again where it broke off, until the events so far satisfy a condition."""
    seen: list[Event] = []
    path = conversation.system.url + conversation.path
    async with asyncio.timeout(PATIENCE_S + OUTAGE_S):
        while True:
            try:
                async with (
                    conversation.system.session.get(f"{path}/stream?after={len(seen)}") as response,
                    aclosing(_events(response)) as arriving,
                ):
                    async for event in arriving:
                        assert event["seq"] == len(seen) + 1, "a gap or a repeat"
                        seen.append(event)
                        if holds(seen):
                            return seen
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.2)  # as a client would; what is waited for is the event


async def _events(response: aiohttp.ClientResponse) -> AsyncGenerator[Event, None]:
    async for line in response.content:
        if line.startswith(b"data: ") and "type" in (event := json.loads(line[6:])) and "seq" in event:
            yield event


async def turn_ended(conversation: Conversation) -> list[Event]:
    """Wait for the end of the turn; nothing was lost and nothing is there twice."""
    seen = await follow(conversation, lambda seen: "turn_ended" in types(seen))
    assert await conversation.events() == seen
    counted = Counter(types(seen))
    assert counted["turn_started"] == counted["turn_ended"] == 1
    assert counted["user_msg"] == 1
    wanted = [one["tool_call_id"] for one in of_type(seen, "tool_call")]
    assert sorted(one["tool_call_id"] for one in of_type(seen, "tool_result")) == sorted(wanted)
    steps = [one["step"] for one in of_type(seen, "assistant_msg")]
    assert steps == sorted(set(steps))
    return seen


def replies(events: list[Event]) -> list[str]:
    """Return the texts of the model's replies."""
    return ["".join(part.get("text", "") for part in one["content"]) for one in of_type(events, "assistant_msg")]


def runs(nodes: Nodes, events: list[Event]) -> list[str]:
    """Return the ids under which the tools of these events ran, one for each run."""
    noted = (nodes.folder / noted_tools.RUNS).read_text().splitlines()
    wanted = {one["tool_call_id"] for one in of_type(events, "tool_call")}
    return [one["id"] for one in map(json.loads, noted) if one["id"] in wanted]


async def runs_at(nodes: Nodes, gate_name: str) -> None:
    """Wait until a tool waits at this gate."""
    noted = nodes.folder / noted_tools.RUNS
    async with asyncio.timeout(PATIENCE_S):
        while not noted.exists() or gate_name not in noted.read_text():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.02)


async def test_a_turn_with_tools_and_an_approval_works_as_on_any_store(
    nodes: Nodes, system: System, model: RemoteModelServer
) -> None:
    both = calls(call("look", {"city": "Rome"}, index=0), call("send_email", EMAIL, index=1))
    await model.expect(says("Let me see. ", both), says("Sunny, and sent."))
    conversation = await system.start("Look at Rome and write to Ada")
    (suspension,) = of_type(await conversation.suspends(), "suspension")
    receipt = await conversation.resolve(suspension["tool_call_id"], "approve")
    events = await turn_ended(conversation)
    assert replies(events) == ["Let me see. ", "Sunny, and sent."]
    assert len(runs(nodes, events)) == len(set(runs(nodes, events))) == 2
    assert len(await model.requests()) == 2
    inbox = await system.get(f"{conversation.path}/tool-calls?min_position={receipt['position']}")
    assert {one["name"] for one in inbox["items"]} == {"look", "send_email"}
    shown = await system.get(f"{conversation.path}?min_position={receipt['position']}")
    assert shown["id"] == conversation.id


async def test_the_log_server_is_restarted_while_the_model_speaks(
    nodes: Nodes, system: System, model: RemoteModelServer
) -> None:
    await model.expect(says("Half a ", gate("spoken"), "reply"))
    conversation = await system.start("Hello")
    await model.requests(1)
    nodes.restart_log()
    await model.open("spoken")
    events = await turn_ended(conversation)
    assert types(events)[-2:] == ["assistant_msg", "turn_ended"]
    assert replies(events) == ["Half a reply"]
    assert len(await model.requests()) == 1


async def test_the_log_server_is_restarted_while_a_tool_runs(
    nodes: Nodes, system: System, model: RemoteModelServer
) -> None:
    await model.expect(says(calls(call("wait_for", {"gate": "restart"}))), says("It is open."))
    conversation = await system.start("Wait")
    await runs_at(nodes, "restart")
    nodes.restart_log()
    (nodes.folder / "restart").touch()
    events = await turn_ended(conversation)
    assert replies(events) == ["", "It is open."]
    assert runs(nodes, events) == [one["tool_call_id"] for one in of_type(events, "tool_call")]
    assert len(await model.requests()) == 2


async def test_every_append_of_a_turn_loses_its_acknowledgement(
    nodes: Nodes, system: System, model: RemoteModelServer
) -> None:
    await nodes.log.control.add(Fault("append", "after"), 3)
    await nodes.log.control.add(Fault("append", "after", "INTERNAL"), 3)
    await model.expect(says(calls(call("send_email", EMAIL))), says("Sent."))
    conversation = await system.start("Write to Ada")
    [*_, suspended] = await follow(conversation, lambda seen: "suspension" in types(seen))
    await nodes.log.control.add(Fault("append", "after"), 4)
    await conversation.resolve(suspended["data"]["tool_call_id"], "approve")
    events = await turn_ended(conversation)
    await nodes.log.control.clear()
    assert Counter(types(events))["resolution"] == 1
    assert replies(events) == ["", "Sent."]
    assert runs(nodes, events) == [one["tool_call_id"] for one in of_type(events, "tool_call")]
    assert len(await model.requests()) == 2


async def test_the_log_server_is_killed_in_the_middle_of_an_append(
    nodes: Nodes, system: System, model: RemoteModelServer
) -> None:
    await model.expect(says("Hello again."))
    conversation = await system.start()
    await nodes.log.control.add(Fault("append", "delay", seconds=30))
    saying = asyncio.create_task(insist(conversation, "Hello"))
    async with asyncio.timeout(PATIENCE_S):
        while (await nodes.log.control.standing())["faults"]:  # noqa: ASYNC110 - another process takes it
            await asyncio.sleep(0.02)
    nodes.restart_log()
    said, _ = await saying
    assert said["seq"] == 2
    events = await turn_ended(conversation)
    assert replies(events) == ["Hello again."]
    assert len(await model.requests()) == 1


async def test_the_log_server_is_restarted_while_a_summary_is_written_which_the_next_turn_sees(
    nodes: Nodes, system: System, model: RemoteModelServer
) -> None:
    summarises = Rule(answer=says("## Goal\n", gate("summary"), "A trip."), any_text="^You summarise")
    await model.rule(summarises, AGREES)
    conversation = await talked(system, 3)
    before = await conversation.events()
    async with asyncio.timeout(PATIENCE_S):
        while not any(map(is_summary, await model.requests())):  # noqa: ASYNC110 - others come before it
            await asyncio.sleep(0.02)
    nodes.restart_log()
    await nodes.log.control.add(Fault("append", "after"), 2)
    await model.open("summary")
    [summary] = await summaries(conversation)
    await nodes.log.control.clear()
    assert (summary["content"], summary["from_seq"]) == ("## Goal\nA trip.", 1)
    await conversation.say("And now?")
    events = await follow(conversation, lambda seen: types(seen).count("turn_ended") == 4)
    assert events[: len(before)] == before, "C1"
    assert of_type(events, "turn_started")[-1]["summary_to_seq"] == summary["to_seq"]
    requests = await model.requests()
    assert "A trip." in text_of(requests[-1].body["messages"][0])
    assert [is_summary(one) for one in requests].count(True) == 1
    assert await summaries(conversation) == [summary]


@pytest.mark.timeout(300 + 3 * OUTAGE_S)
async def test_the_log_server_is_away_for_a_while(nodes: Nodes, system: System, model: RemoteModelServer) -> None:
    waits, reply = calls(call("wait_for", {"gate": "outage"})), says("Half a ", gate("outage"), "reply")
    await model.expect(says(waits))
    running = await system.start("Wait")
    await runs_at(nodes, "outage")
    await model.expect(reply)
    spoken_to = await system.start("Hello")
    await model.requests(2)
    idle = await system.start()

    nodes.log.kill()
    back = asyncio.get_running_loop().time() + OUTAGE_S
    await until_ready(system, but_for="log")
    (nodes.folder / "outage").touch()
    await model.open("outage")
    saying = asyncio.create_task(insist(idle, "Are you there?"))
    await asyncio.sleep(max(0.0, back - asyncio.get_running_loop().time()))  # the outage itself
    nodes.log.start()

    _, refused = await saying
    assert refused or OUTAGE_S < 20
    assert replies(await turn_ended(running)) == ["", "The tool said: outage is open"]
    assert replies(await turn_ended(spoken_to)) == ["Half a reply"]
    assert replies(await turn_ended(idle)) == ["You said: Are you there?"]
    assert len(await model.requests()) == 4
    await until_ready(system)


async def until_ready(system: System, *, but_for: str = "") -> None:
    """Wait until the api says that it is ready, or that this of all things is not."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            async with system.session.get(f"{system.url}/readyz") as response:
                unready = (await response.json())["unready"]
            assert response.status == (503 if unready else 200)
            if but_for in unready if but_for else not unready:
                return
            await asyncio.sleep(0.1)


async def insist(conversation: Conversation, text: str) -> tuple[Any, int]:
    """Say it until it is accepted, as a client does that is told when to try again; return the refusals' number too."""
    refused, key = 0, {"Idempotency-Key": uuid4().hex}
    url = f"{conversation.system.url}{conversation.path}/messages"
    while True:
        async with conversation.system.session.post(url, json={"content": text}, headers=key) as response:
            answer = await response.json()
        if response.status == 202:
            return answer, refused
        assert response.status == 503, answer
        refused += 1
        await asyncio.sleep(float(response.headers["Retry-After"]))


async def test_an_idle_projectors_checkpoint_moves_on_while_other_streams_are_busy(
    nodes: Nodes, system: System
) -> None:
    stream = f"conversation-{uuid4()}"
    async with EventStoreDBEventStore(nodes.log.uri, "theirs-") as theirs:
        mark = (await theirs.append(stream, some_events(200), 0)).position
        version = 200
        async with asyncio.timeout(PATIENCE_S):
            while min(await checkpoints(system)) < mark:
                version = (await theirs.append(stream, some_events(100), version)).seq
                await asyncio.sleep(0.2)


async def checkpoints(system: System) -> list[int]:
    """Return how far each projection says that it has looked."""
    return [one["position"] for one in (await system.get("/v1/projections"))["items"]]


async def test_the_command_line_works_on_it(nodes: Nodes, system: System, model: RemoteModelServer) -> None:
    [said] = await asyncio.to_thread(_ended, nodes, ("chat", "--url", nodes.url))
    conversation = Conversation(system, said.stdout.splitlines()[0].removeprefix("conversation "))
    assert "You said: hello there" in said.stdout
    await conversation.shown()  # what is printed of read models has it too
    with Program("events", conversation.id, "--follow", **nodes.settings) as following:
        shown, standing = await asyncio.to_thread(
            _ended, nodes, ("events", conversation.id, "--json"), ("projections", "--json")
        )
        await asyncio.to_thread(following.wait_for, "turn 1 completed")
        await conversation.say("and again")
        await asyncio.to_thread(following.wait_for, "turn 2 completed")
    events = [json.loads(line) for line in shown.stdout.splitlines()]
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert types(events) == ["conversation_started", "user_msg", "turn_started", "assistant_msg", "turn_ended"]
    items = {item["name"]: item for item in json.loads(standing.stdout)["items"]}
    assert items["conversations"]["status"] == "running"
    assert items["conversations"]["position"] >= events[-1]["position"]


def _ended(nodes: Nodes, *commands: tuple[str, ...]) -> list[Ended]:
    """Run commands side by side, each with a line typed, to their end."""
    with ExitStack() as stack:
        programs = [stack.enter_context(Program(*command, **nodes.settings)) for command in commands]
        for program in programs:
            program.type("hello there")
        return [program.end() for program in programs]
