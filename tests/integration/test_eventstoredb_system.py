"""Rejoinder on EventStoreDB: how it starts, how it says why it doesn't, and what it says while its log is away."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from tests.support.eventstoredb import Double, Security
from tests.support.model_script import says
from tests.support.program import Ended, run
from tests.support.slack import PATIENCE_S
from tests.support.system import System, system_over, types

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.model_server import ModelServer


@pytest.fixture(scope="module")
def nobody() -> Iterator[int]:
    """A port at which nobody listens, for it is taken."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


async def started(store: str, database_url: str, *command: str) -> Ended:
    return await asyncio.to_thread(
        run, *(command or ("serve", "--port", "0")), event_store=store, database_url=database_url
    )


def is_one_line(ended: Ended, *texts: str) -> bool:
    [line] = ended.stderr.splitlines()
    return ended.stdout == "" and line.startswith("rejoinder: ") and all(text in line for text in texts)


async def test_a_server_that_is_not_there_is_one_clear_line(database_url: str, nobody: int) -> None:
    ended = await started(f"esdb://127.0.0.1:{nobody}?tls=false", database_url)
    assert ended.exit_code == 1
    assert is_one_line(ended, "EventStoreDB is out of reach", "Connection refused", "REJOINDER_EVENT_STORE")


async def test_a_wrong_password_and_an_unknown_authority_are_one_clear_line_without_the_password(
    database_url: str, tmp_path: Path
) -> None:
    authority = tmp_path / "ca.pem"
    async with Double(security=(security := Security())) as server:
        security.write_authority(authority)
        place = f"127.0.0.1:{server.port}"
        wrong, distrusted = await asyncio.gather(
            started(f"esdb://admin:s3cret@{place}?tlscafile={authority}", database_url),
            started(f"esdb://admin:s3cret@{place}", database_url, "projections"),
        )
    assert wrong.exit_code == distrusted.exit_code == 1
    assert is_one_line(wrong, "EventStoreDB refuses the user or the password", "REJOINDER_EVENT_STORE")
    assert is_one_line(distrusted, "certificate is not trusted", "tlscafile")
    assert "s3cret" not in wrong.stderr + distrusted.stderr


async def test_a_bad_connection_string_is_one_clear_line_that_does_not_repeat_it(database_url: str) -> None:
    ended = await started("esdb://admin:s3cret@127.0.0.1?tls=perhaps", database_url)
    assert ended.exit_code == 2
    assert is_one_line(ended, "REJOINDER_EVENT_STORE: ", "true or false")
    assert "s3cret" not in ended.stderr


async def ready(system: System) -> None:
    """Wait until all is ready; read models may be behind for a moment."""
    async with asyncio.timeout(PATIENCE_S):
        while (await (await system.session.get(f"{system.url}/readyz")).json())["status"] != "ready":
            pass


async def test_while_the_log_is_away_the_server_says_so_and_then_goes_on_by_itself(
    database_url: str, model_server: ModelServer
) -> None:
    async with (
        Double() as server,
        system_over(database_url, model_server, event_store=server.uri, stream_prefix="ours-") as system,
    ):
        model_server.expect(says("Good morning"), says("Good evening"))
        conversation = await system.start("Hello")
        await conversation.turn_ends()
        assert {record.stream for record in server.log.records if record.stream[0] != "$"} == {
            f"ours-conversation-{conversation.id}",
            "ours-rejoinder-log",
        }
        await ready(system)

        await server.stop()
        away = await system.get("/readyz", status=503)
        assert away["unready"]["log"] == "does not answer"
        assert (await system.get("/healthz")) == {"status": "ok"}
        sending = asyncio.create_task(conversation.say("And now?"))
        server.log.restarted()
        await server.start()
        await sending
        events = await conversation.turn_ends(2)
        assert types(events)[-1] == "turn_ended"
        await ready(system)
