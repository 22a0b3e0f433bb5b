"""Connections that die without a word, and notifications that get lost: nothing is delayed by more than five seconds.

The bounds are the semantics' five seconds and what a loaded machine needs to do the work itself. The short form is less
patient than the product is; ``REJOINDER_LONG=1`` takes its own times.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING

import psycopg
import pytest

from commands.agent import lookout
from infra import database as database_module
from infra.database import Database
from infra.postgres_event_store import subscriptions
from tests.support.long_form import LONG
from tests.support.model_script import gate, says
from tests.support.postgres_line import line_to
from tests.support.slack import PATIENCE_S, SLACK_S
from tests.support.stream_nodes import SseReader
from tests.support.system import system_over, types

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from psycopg import Notify

    from tests.support.model_server import ModelServer
    from tests.support.postgres_line import Line
    from tests.support.system import System

LATEST_S = 5.0
END = "pg_terminate_backend(pid, 30000)"
"""It waits for the end: who is still being hung up on is lent to nobody."""


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less than the product does, in the short form."""
    if not LONG:
        monkeypatch.setattr(database_module, "PING_AFTER_S", 0.5)
        monkeypatch.setattr(database_module, "PONG_WITHIN_S", 0.5)
        monkeypatch.setattr(subscriptions, "ANSWER_SECONDS", 0.7)
        monkeypatch.setattr(lookout, "LONGEST_SLEEP_S", 1.0)


@pytest.fixture
async def line(database_url: str) -> AsyncIterator[Line]:
    async with line_to(database_url) as laid:
        yield laid


@pytest.fixture
async def front(database_url: str, model_server: ModelServer) -> AsyncIterator[System]:
    """An API and a projector that nothing happens to."""
    async with system_over(database_url, model_server, ["api", "projector"]) as system:
        yield system


async def lose_listeners(how: str, line: Line, database_url: str) -> None:
    """Take from everybody behind the line what he listens by: in silence, or by a hang-up of the server."""
    if how == "silent":
        async with asyncio.timeout(PATIENCE_S):
            while not line.silence(lambda call: call.listens):  # noqa: ASYNC110 - who lost his line begins again
                await asyncio.sleep(0.02)
        return
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute(
            f"select {END} from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() "
            "and (query like 'listen %' or query = 'select' or query like '%from log.events%')"
        )


async def test_listening_on_a_line_that_fell_silent_begins_again(line: Line) -> None:
    async with Database(line.dsn) as database, aclosing(database.listen(["news"])) as notifications:
        assert await anext(notifications) is None
        assert line.silence(lambda call: call.listens)
        began = time.monotonic()
        assert await anext(notifications) is None
        assert time.monotonic() - began < LATEST_S + SLACK_S
        heard: Notify | None = None
        while heard is None:  # it has begun to listen once more: what was said before is lost
            async with database.connection() as connection:
                await connection.execute("notify news, 'again'")
            heard = await anext(notifications)
        assert heard.payload == "again"


@pytest.mark.parametrize("how", ["silent", "hung up on"])
async def test_t7_b5_a_worker_that_has_stopped_hearing_starts_turns_and_obeys_a_cancel(
    how: str, line: Line, front: System, database_url: str, model_server: ModelServer
) -> None:
    model_server.expect(says("Warm"), says("So ", gate("never")))
    async with system_over(line.dsn, model_server, ["worker"]):
        await (await front.start("Hello")).turn_ends()
        await lose_listeners(how, line, database_url)
        began = time.monotonic()
        conversation = await front.start("Go")
        await model_server.requests(2)
        started_s = time.monotonic() - began
        await lose_listeners(how, line, database_url)
        cancelled = time.monotonic()
        await front.post(f"{conversation.path}/cancel", {}, status=202)
        obeyed_s = await model_server.closed(1) - cancelled
    print(f"{how}: the turn began after {started_s:.2f} s, the cancel was obeyed after {obeyed_s:.2f} s")
    assert started_s < LATEST_S + SLACK_S
    assert obeyed_s < LATEST_S + SLACK_S


@pytest.mark.parametrize("how", ["silent", "hung up on"])
async def test_w1_r7_a_node_that_has_stopped_hearing_shows_events_partials_and_its_own_writes(
    how: str, line: Line, database_url: str, model_server: ModelServer
) -> None:
    model_server.expect(says("Half a reply ", gate("go on"), "and the rest"))
    async with (
        system_over(database_url, model_server, ["projector", "worker", "api"]) as others,
        system_over(line.dsn, model_server, ["api"]) as deaf,
    ):
        conversation = await others.start()
        async with deaf.session.get(deaf.url + conversation.path + "/stream") as response:
            reader = SseReader(response)
            await reader.until("caught_up")
            await lose_listeners(how, line, database_url)
            began = time.monotonic()
            await conversation.say("Hello")
            await reader.until("user_msg")
            event_s = time.monotonic() - began
            await lose_listeners(how, line, database_url)
            began = time.monotonic()
            model_server.open("go on")
            await reader.until("turn_ended")
            end_s = time.monotonic() - began
            await lose_listeners(how, line, database_url)
            began = time.monotonic()
            said = await conversation.say("And again")
            shown = await deaf.get(f"{conversation.path}/messages?min_position={said['position']}&wait_ms=30000")
            projected_s = time.monotonic() - began
        assert shown["items"][-1]["content_type"] == "text"
        events = await conversation.turn_ends(2)
    print(f"{how}: event {event_s:.2f} s, end of turn {end_s:.2f} s, own write {projected_s:.2f} s late")
    assert max(event_s, end_s, projected_s) < LATEST_S + SLACK_S
    assert reader.seqs == sorted(set(reader.seqs))
    assert types(events).count("turn_ended") == 2


@pytest.mark.parametrize("how", ["silent", "hung up on"])
async def test_w2_deltas_are_shown_again_after_their_listener_was_lost(
    how: str, line: Line, database_url: str, model_server: ModelServer
) -> None:
    model_server.expect(says("One ", gate("two"), "two ", gate("end"), "three"))
    async with (
        system_over(database_url, model_server, ["projector", "worker", "api"]) as others,
        system_over(line.dsn, model_server, ["api"]) as deaf,
    ):
        conversation = await others.start("Count")
        async with deaf.session.get(deaf.url + conversation.path + "/stream") as response:
            reader = SseReader(response)
            await reader.until_said("One ")
            await lose_listeners(how, line, database_url)
            began = time.monotonic()
            model_server.open("two")
            await reader.until_said("One two ")
            shown_s = time.monotonic() - began
            model_server.open("end")
            await reader.until("turn_ended")
    print(f"{how}: what was said meanwhile was shown after {shown_s:.2f} s")
    assert shown_s < LATEST_S + SLACK_S


async def test_a_worker_without_any_notification_looks_for_itself(
    front: System, database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every NOTIFY is lost: those of the API, the log and the projector."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        # found before pg_catalog's, and does nothing
        await connection.execute("create function public.pg_notify(text, text) returns void language sql as 'select'")
        name = connection.info.dbname
        await connection.execute(f'alter database "{name}" set search_path = public, pg_catalog')
        await connection.execute(
            f"select {END} from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        )
    async with system_over(database_url, model_server, ["worker"]):
        began = time.monotonic()
        conversation = await front.start("Hello")
        await conversation.turn_ends()
        took_s = time.monotonic() - began
    print(f"without notifications a turn took {took_s:.2f} s")
    assert took_s < 2 * LATEST_S + SLACK_S
