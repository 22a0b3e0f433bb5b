"""`chat` as a process, piped and on a terminal, against a server that is another process."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from tests.support.program import Program, data_directory, held_port, run
from tests.support.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def data_dir() -> Iterator[Path]:
    with data_directory() as directory:
        yield directory


@pytest.fixture(scope="module")
def url(data_dir: Path) -> Iterator[str]:
    """Where a server with the demo model listens."""
    with Program("serve", "--port", "0", data_dir=data_dir) as server:
        yield server.url()
        assert server.stop().exit_code == 0


def test_a_piped_chat_does_a_turn_with_an_approval_and_one_with_answers(url: str, data_dir: Path) -> None:
    ended = run(
        "chat",
        "--url",
        url,
        typed='email ada@example.org: hi\nperhaps\na\nask me something and where am i\nblue\n{"latitude": 1.5}\n',
    )

    assert (ended.exit_code, ended.stderr) == (0, "")
    assert _without_times(ended.stdout)[1:-1] == [
        "you: email ada@example.org: hi",
        "agent: One moment: send_email.",
        '  tool send_email(to="ada@example.org", body="hi")',
        '  ? The agent wants to run send_email(to="ada@example.org", body="hi")',
        "type a(pprove), e(dit) [arguments as JSON] or r(eject) [reason]",
        "  send_email: approved by local",
        "  send_email ok: The email to ada@example.org is in the outbox.",
        "agent: About the email: The email to ada@example.org is in the outbox.",
        "you: ask me something and where am i",
        "agent: One moment: ask_user, get_location.",
        '  tool ask_user(question="What is your favourite colour?")',
        "  tool get_location()",
        "  ? What is your favourite colour?",
        "  ? The client is to run get_location()",
        "  ask_user: answered by local",
        "  ask_user ok: blue",
        "  get_location: answered by local",
        '  get_location ok: {"latitude":1.5}',
        "agent: You answered: blue.",
        "",
        'You are here: {"latitude":1.5}.',
    ]
    outbox = (data_dir / "outbox.jsonl").read_text().splitlines()
    assert [json.loads(line)["to"] for line in outbox] == ["ada@example.org"]


def test_edits_and_rejections_say_what_was_decided(url: str) -> None:
    edited = '{"to": "eve@example.org", "body": "changed"}'
    ended = run(
        "chat",
        "--url",
        url,
        typed=f"email bob@example.org: a\nr not today\nemail bob@example.org: b\ne\n{edited}\n",
    )

    assert "  send_email: rejected by local: not today" in ended.stdout
    assert '  send_email: edited by local, to run with (to="eve@example.org", body="changed")' in ended.stdout
    assert "The email to eve@example.org is in the outbox." in ended.stdout


def test_b1_a_conversation_is_resumed_with_its_history_and_its_open_question(url: str) -> None:
    left = run("chat", "--url", url, typed="hello there\nemail ada@example.org: later\n").stdout
    conversation = left.splitlines()[0].removeprefix("conversation ")
    assert left.splitlines()[-1] == f"an answer is still waited for; go on with: rejoinder chat {conversation}"

    resumed = run("chat", conversation, "--url", url, typed="/cancel\nhello again\n").stdout

    lines = _without_times(resumed)
    assert lines[:2] == ["you: hello there", "agent: You said: hello there"]
    assert lines[-4:-1] == ["(cancelled)", "you: hello again", "agent: You said: hello again"]


def test_h2_an_answer_to_what_was_decided_elsewhere_is_not_sent(url: str) -> None:
    with Program("chat", "--url", url) as chat:
        chat.type("ask me something")
        conversation = chat.wait_for("conversation ").split()[-1]
        chat.wait_for("  ? What is your favourite colour?")
        run("chat", conversation, "--url", url, typed="/reject from elsewhere\n")
        chat.wait_for("agent: You answered: A person rejected this call. Reason: from elsewhere.")
        chat.type("green")
        ended = chat.end()

    assert ended.exit_code == 0
    assert ended.stdout.splitlines()[-2] == "that was decided meanwhile"


def test_what_a_model_or_tool_says_cannot_steer_the_terminal(url: str) -> None:
    ended = run("chat", "--url", url, typed="beep \x1b]0;title\x07 \x1b[2J\n")

    assert "\x1b" not in ended.stdout
    assert "agent: You said: beep \ufffd]0;title\ufffd \ufffd[2J" in ended.stdout


def test_new_begins_another_conversation_and_unknown_commands_are_said(url: str) -> None:
    ended = run("chat", "--url", url, typed="one\n/new\ntwo\n/dance\n/quit\nthree\n").stdout

    assert len([line for line in ended.splitlines() if line.startswith("conversation ")]) == 2
    assert "there is no /dance" in ended
    assert "three" not in ended


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (("--url", "http://127.0.0.1:1"), 1, "no server listens on http://127.0.0.1:1: start one with"),
        (("--url", "nonsense"), 2, "nonsense is no URL"),
        ((str(uuid4()), "--url", "{url}"), 1, "conversation"),
        (("not-an-id", "--url", "{url}"), 2, "valid UUID"),
    ],
)
def test_what_keeps_it_from_talking_is_said_in_one_line(
    url: str, arguments: tuple[str, ...], exit_code: int, said: str
) -> None:
    ended = run("chat", *(argument.format(url=url) for argument in arguments), typed="hello\n")

    (line,) = ended.stderr.splitlines()
    assert (ended.exit_code, ended.stdout) == (exit_code, "")
    assert line.startswith("rejoinder: ")
    assert said in line


def test_a_server_with_keys_wants_one(database_url: str, tmp_path: Path) -> None:
    key, entry = [
        line
        for line in run("keys", "create", "--tenant", "acme", "--user", "ada").stdout.splitlines()
        if line.startswith(("rj_", "{"))
    ]
    keys = tmp_path / "keys.json"
    keys.write_text(f"[{entry}]")
    given: dict[str, Any] = {"database_url": database_url, "data_dir": tmp_path}
    with Program("serve", "--port", "0", api_keys_file=keys, **given) as server:
        url = server.url()
        refused = run("chat", "--url", url, typed="hello\n")
        taken = run("chat", "--url", url, typed="hello\n", api_key=key)

    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1)
    assert "--key or REJOINDER_API_KEY" in refused.stderr
    assert "agent: You said: hello" in taken.stdout


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_w1_it_goes_on_when_its_server_comes_back(database_url: str, tmp_path: Path, ending: signal.Signals) -> None:
    given: dict[str, Any] = {"database_url": database_url, "data_dir": tmp_path}
    with held_port() as port, Program("serve", "--port", str(port), **given) as server:
        url = server.url()
        with Program("chat", "--url", url) as chat:
            chat.type("email ada@example.org: hi")
            chat.wait_for("  ? The agent wants to run")
            server.stop(ending)
            chat.wait_for("(the connection is lost, trying again)")
            with Program("serve", "--port", str(port), **given) as another:
                another.url()
                chat.type("a")
                chat.wait_for("agent: About the email")
                ended = chat.end()

    assert (ended.exit_code, ended.stderr) == (0, "")
    assert ended.stdout.count("  ? The agent wants to run") == 1, "what was shown is not shown again"


def test_on_a_terminal_an_approval_is_asked_for_and_ctrl_c_leaves(url: str) -> None:
    with on_terminal("chat", "--url", url) as terminal:
        terminal.wait_until(lambda lines: lines[-1:] == [">"])
        terminal.type("email ada@example.org: hi\r")
        terminal.wait_for("send_email: approve, edit or reject?")
        terminal.type("e\r")
        terminal.wait_for('arguments as JSON: {"to": "ada@example.org", "body": "hi"}')
        terminal.type('\b\b!"}\r')
        terminal.wait_for("edited by local", "agent: About the email")
        terminal.wait_until(lambda lines: lines[-1] == ">")
        terminal.type("\x03")
        assert terminal.ended() == 0

    shown = "\n".join(terminal.lines)
    assert '(to="ada@example.org", body="hi!")' in shown
    assert "you: " not in shown, "what was typed is there already"
    assert terminal.lines[-1].startswith("go on with: rejoinder chat ")


def _without_times(text: str) -> list[str]:
    return re.sub(r" \(until [^)]*\)", "", text).splitlines()
