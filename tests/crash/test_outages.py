"""The database server is killed, or away for a while: nothing is lost, nothing is done twice, everybody goes on.

An outage lasts 3 s, with ``REJOINDER_LONG=1`` 30 s.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.support.long_form import LONG
from tests.support.model_script import Rule, Step, call, calls, says
from tests.support.postgres import own_postgres, postmaster
from tests.support.program import data_directory
from tests.support.system import of_type, types
from tests.support.talkers import Talker
from tests.support.workers import assert_paid_once, whole_log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from infra.embedded_postgres import EmbeddedPostgres
    from tests.support.forked import Forker
    from tests.support.model_server import ModelServer

AWAY_S = 30.0 if LONG else 3.0
TALKERS = 6
KILLS = 5 if LONG else 1
AFTERWARDS_S = 60.0
"""So long after the outage everybody must have had an answer."""

pytestmark = pytest.mark.timeout(400 if LONG else 300)


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    found = []
    for one in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = one.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid:
            found.append(int(one.parent.name))
    return found


class Outside:
    """A server that is not ours to keep alive."""

    def __init__(self, home: Path, server: EmbeddedPostgres) -> None:
        self.dsn, self._home, self._server = server.dsn, home, server

    @asynccontextmanager
    async def away(self, how: str) -> AsyncIterator[None]:
        """Be killed, or stand still, for the block."""
        pid = postmaster(self._home)
        if how == "killed":
            os.kill(pid, signal.SIGKILL)
            yield
            self._server.stop()
            self._server.start()
        else:
            os.kill(pid, signal.SIGSTOP)  # first: then it has no more children, and all of them stay
            backends = children(pid)
            for one in backends:
                os.kill(one, signal.SIGSTOP)
            try:
                yield
            finally:
                for one in (*backends, pid):
                    os.kill(one, signal.SIGCONT)


@pytest.fixture
def outside() -> Iterator[Outside]:
    with data_directory() as home, own_postgres(home) as server:
        yield Outside(home, server)


@pytest.fixture(autouse=True)
def script(model_server: ModelServer) -> None:
    """Each turn calls a tool, and takes its time to speak."""
    add = call("add", {"a": 1, "b": 2})
    pause = Step(pause_s=0.05)
    model_server.rule(
        Rule(answer=says("Let ", pause, "me ", pause, "see", calls(add)), last_role="user"),
        Rule(answer=says("It ", pause, "is ", pause, "three"), last_role="tool"),
    )


def settings(model_server: ModelServer) -> dict[str, str]:
    return {
        "model": "openai/scripted",
        "model_api_base": model_server.url,
        "model_api_key": "sk-scripted",
        "tools": "tests.support.agent_tools",
        "log_level": "ERROR",
    }


@asynccontextmanager
async def talking(url: str) -> AsyncIterator[list[Talker]]:
    """Let people talk during the block; afterwards all have their answers, and what they saw is the whole log."""
    timeout = aiohttp.ClientTimeout(total=None, sock_read=None)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        talkers = [Talker(url, session) for _ in range(TALKERS)]
        done = asyncio.Event()
        talks = [asyncio.create_task(one.talk(done)) for one in talkers]
        try:
            await _all_said(talkers, talks, 2)
            yield talkers
            await _all_said(talkers, talks, 2)
            done.set()
            async with asyncio.timeout(AFTERWARDS_S):
                await asyncio.gather(*talks)
        finally:
            for talk in talks:
                talk.cancel()
            await asyncio.wait(talks)
        for one in talkers:
            log = await whole_log(one.conversation)
            assert [event["seq"] for event in one.seen] == [event["seq"] for event in log], "a gap, or something twice"
            assert_paid_once(log)
            assert [said["message_id"] for said in of_type(log, "user_msg")] == one.said
            assert [end["outcome"] for end in of_type(log, "turn_ended")] == ["completed"] * len(one.said)
            shown = await one.system.get(
                f"{one.conversation.path}/messages?limit=200&min_position={log[-1]['position']}&wait_ms=20000"
            )
            texts = {item["seq"] for item in shown["items"] if item["content_type"] == "text"}
            spoken = [event["seq"] for event in log if event["type"] in ("user_msg", "assistant_msg")]
            assert texts >= {seq for seq in spoken if seq >= shown["items"][0]["seq"]}


async def _all_said(talkers: list[Talker], talks: list[asyncio.Task[None]], more: int) -> None:
    """Wait until each has been answered so many more times, or somebody failed."""
    wanted = [len(one.said) + more for one in talkers]
    async with asyncio.timeout(AFTERWARDS_S):
        while any(len(one.said) < least for one, least in zip(talkers, wanted, strict=True)):
            for talk in talks:
                if talk.done():
                    talk.result()
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_l8_an_outage_of_the_database_loses_nothing_and_everybody_goes_on_afterwards(
    outside: Outside, forker: Forker, model_server: ModelServer, how: str
) -> None:
    given = settings(model_server) | {"database_url": outside.dsn, "port": "0"}
    async with (
        forker.serve("--role", "api,projector", **given) as front,
        forker.serve("--role", "worker", **given),
    ):
        async with talking(front.url) as talkers:
            async with outside.away(how):
                began = time.monotonic()
                asked = [asyncio.create_task(_ask(front.url, method)) for method in ("GET", "POST")]
                await asyncio.sleep(AWAY_S)
                away_s = time.monotonic() - began
            back = time.monotonic()
            answers = [await one for one in asked]
            before = [len(one.said) for one in talkers]
            await _all_said(talkers, [], 1)
            again_s = time.monotonic() - back
        connected = max(one.connected for one in talkers)
    turns = sum(len(one.said) for one in talkers)
    print(
        f"{how} for {away_s:.0f} s: {turns} turns ({sum(before)} before), a query and a command were answered "
        + " and ".join(f"{status} after {seconds:.1f} s" for status, seconds in answers)
        + f", all talked again after {again_s:.1f} s, at most {connected} connects a stream, "
        f"{len(model_server.received)} model calls for {2 * turns} replies"
    )
    if LONG:
        assert [status for status, _ in answers] == [503, 503], "who asks is told to come again"
    assert len(model_server.received) <= 2 * turns + TALKERS, "a reply that was paid is kept until it can be recorded"


async def test_l8_the_embedded_server_comes_back_by_itself_whenever_it_is_killed(
    forker: Forker, model_server: ModelServer
) -> None:
    with data_directory() as home:
        async with forker.serve(data_dir=str(home), port="0", **settings(model_server)) as process:
            async with talking(process.url) as talkers:
                for _ in range(KILLS):
                    os.kill(postmaster(home), signal.SIGKILL)
                    began = time.monotonic()
                    await _all_said(talkers, [], 1)
                    print(f"killed: everybody had another answer after {time.monotonic() - began:.1f} s")
            turns = sum(len(one.said) for one in talkers)
            assert "turn_resumed" not in [kind for one in talkers for kind in types(one.seen)], "nobody else was there"
    assert len(model_server.received) == 2 * turns, "no reply was paid twice"


async def _ask(url: str, method: str) -> tuple[int, float]:
    """Query or command something; return the status of the answer, which says when to come again, and the seconds."""
    began = time.monotonic()
    async with aiohttp.ClientSession() as session:
        body: dict[str, str] | None = {} if method == "POST" else None
        async with session.request(method, f"{url}/v1/conversations", json=body) as response:
            assert response.status in (200, 201) or response.headers["Retry-After"], await response.text()
            return response.status, time.monotonic() - began
