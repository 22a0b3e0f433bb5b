"""`serve` as a process: how it starts, stops, refuses to start, and shares the work with another."""

from __future__ import annotations

import signal
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.support.program import Program, data_directory, run
from tests.support.slack import SLACK_S
from tests.support.system import System, types

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

SLOW_TOOL = '''
import asyncio

async def current_time() -> str:
    """Tell the time, slowly."""
    await asyncio.sleep(60)
    return "late"
'''


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with data_directory() as directory:
        yield directory


async def test_serve_says_where_it_listens_and_sigterm_ends_it_in_good_order(data_dir: Path) -> None:
    with Program("serve", "--port", "0", data_dir=data_dir) as server:
        url = server.url()
        assert server.wait_for("web page").endswith(f"{url}/")
        async with client(url) as system:
            conversation = await system.start("hello")
            await conversation.turn_ends()
            async with system.session.get(f"{url}{conversation.path}/stream") as stream:
                ended = server.stop()
                await stream.read()  # raises for a stream that was cut in the middle

    assert ended.exit_code == 0, ended.stderr
    assert ended.took < 10 + SLACK_S
    assert "Traceback" not in ended.stderr


async def test_a_slow_tool_does_not_hold_up_the_end(database_url: str, tmp_path: Path) -> None:
    tools = tmp_path / "slow.py"
    tools.write_text(SLOW_TOOL)
    with Program("serve", "--port", "0", database_url=database_url, tools=tools, data_dir=tmp_path) as server:
        async with client(server.url()) as system:
            conversation = await system.start("what time is it")
            await conversation.until(lambda seen: seen[-1]["type"] == "tool_call")
        ended = server.stop()

    assert ended.exit_code == 0, ended.stderr
    assert ended.took < 10 + SLACK_S
    assert "Traceback" not in ended.stderr


def test_a_second_ctrl_c_ends_it_at_once(database_url: str, tmp_path: Path) -> None:
    with Program("serve", "--role", "worker", database_url=database_url, data_dir=tmp_path) as worker:
        worker.wait_for("ready")
        worker.send(signal.SIGINT)
        worker.send(signal.SIGINT)
        ended = worker.end()

    assert ended.exit_code in (0, 130), "it may have been done before the second one came"
    assert ended.took < 5 + SLACK_S


def test_it_can_be_stopped_while_it_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dsn = f"postgresql://nobody@127.0.0.1:{silent.getsockname()[1]}/none"
        with Program("serve", "--port", "0", database_url=dsn, data_dir=tmp_path) as server:
            connection, _ = silent.accept()
            with connection:
                ended = server.stop()

    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, "", "")


def test_a_port_that_is_taken_is_said_in_one_line_before_anything_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = run("serve", "--port", str(port), data_dir=tmp_path / "data")

    assert (ended.exit_code, (tmp_path / "data").exists()) == (1, False)
    assert _only_line(ended.stderr).startswith(f"rejoinder: the address 127.0.0.1:{port} is taken: choose another")


@pytest.mark.parametrize(
    ("arguments", "settings", "exit_code", "said"),
    [
        ((), {"port": "many"}, 2, "REJOINDER_PORT"),
        ((), {"model_api_key": "geheim", "worker_concurrency": "geheim"}, 2, "REJOINDER_WORKER_CONCURRENCY"),
        (("--host", "0.0.0.0"), {}, 2, "REJOINDER_API_KEYS_FILE"),
        (("--role", "cook"), {}, 2, "there is no role 'cook'"),
        (("--port", "x"), {}, 2, "--port"),
        (("--bogus",), {}, 2, "--bogus"),
        ((), {"api_keys_file": "{tmp}/absent.json"}, 2, "absent.json"),
        ((), {"api_keys_file": "{tmp}/broken"}, 2, "broken"),
        ((), {"tools": "{tmp}/absent.py"}, 2, "REJOINDER_TOOLS"),
        ((), {"tools": "{tmp}/broken"}, 2, "REJOINDER_TOOLS"),
        ((), {"tools": "{tmp}/raising.py"}, 2, "ZeroDivisionError"),
        ((), {"database_url": "postgresql://nobody@127.0.0.1:1/none"}, 1, "REJOINDER_DATABASE_URL"),
        ((), {"data_dir": "{tmp}/broken"}, 1, "broken"),
    ],
)
def test_what_keeps_it_from_starting_is_said_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], settings: dict[str, str], exit_code: int, said: str
) -> None:
    (tmp_path / "broken").write_text("[")
    (tmp_path / "raising.py").write_text("1 / 0\n")
    given = {"data_dir": str(tmp_path / "data"), "port": "0"} | {
        key: value.format(tmp=tmp_path) for key, value in settings.items()
    }

    ended = run("serve", *arguments, **given)

    line = _only_line(ended.stderr)
    assert (ended.exit_code, ended.stdout) == (exit_code, "")
    assert said in line
    assert "geheim" not in line


async def test_two_processes_do_together_what_one_does(database_url: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"database_url": database_url, "data_dir": tmp_path}
    with (
        Program("serve", "--role", "api", "--port", "0", **given) as api,
        Program("serve", "--role", "worker,projector", **given) as others,
    ):
        async with client(api.url()) as system:
            others.wait_for("ready")
            conversation = await system.start("what time is it")
            logged = await conversation.turn_ends()
            shown = await conversation.shown("messages")
        assert (others.stop().exit_code, api.stop().exit_code) == (0, 0)

    assert types(logged) == [
        "conversation_started",
        "user_msg",
        "turn_started",
        "assistant_msg",
        "tool_call",
        "tool_result",
        "assistant_msg",
        "turn_ended",
    ]
    assert [item["message_type"] for item in shown["items"]] == ["user", "assistant", "tool", "tool", "assistant"]


async def test_a_created_key_opens_a_server_that_has_its_entry(database_url: str, tmp_path: Path) -> None:
    made = run("keys", "create", "--tenant", "acme", "--user", "ada", "--role", "admin").stdout.splitlines()
    (key,) = (line for line in made if line.startswith("rj_"))
    (entry,) = (line for line in made if line.startswith("{"))
    keys = tmp_path / "keys.json"
    keys.write_text(f"[{entry}]")
    given: dict[str, Any] = {"api_keys_file": keys, "database_url": database_url, "data_dir": tmp_path}

    with Program("serve", "--role", "api", "--port", "0", **given) as server:
        async with client(server.url()) as system:
            await system.post("/v1/conversations", {}, status=201, headers={"Authorization": f"Bearer {key}"})
            await system.post("/v1/conversations", {}, status=401, headers={"Authorization": f"Bearer {key[:-1]}"})

    assert key not in keys.read_text()


@asynccontextmanager
async def client(url: str) -> AsyncIterator[System]:
    async with aiohttp.ClientSession() as session:
        yield System(url, session)


def _only_line(text: str) -> str:
    (line,) = text.splitlines()
    return line
