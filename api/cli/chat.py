"""`chat`: talk with the agent of a running server."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from api.cli.job import Job

if TYPE_CHECKING:
    from api.cli.talk import Talk
    from infra.settings import Settings

CALL_S = 30.0
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that are listened on but cannot be called, and the one to call."""

Conversation = Annotated[
    UUID | None,
    typer.Argument(
        metavar="CONVERSATION", help="The conversation to go on with; without it a new one.", show_default=False
    ),
]
Url = Annotated[
    str | None, typer.Option(help="The server, else http://REJOINDER_HOST:REJOINDER_PORT.", show_default=False)
]
Key = Annotated[
    str | None, typer.Option(help="The API key, for a server with keys.", envvar="REJOINDER_API_KEY", show_envvar=True)
]


def chat(conversation: Conversation = None, url: Url = None, key: Key = None) -> Job:
    """Talk in the terminal: live words, tool calls, approvals.

    At an approval type approve, edit or reject. Ctrl-C stops an agent that
    is at work, and leaves at the prompt. Lines can also be piped in.
    """
    return Job(partial(_chat, conversation_id=conversation, url=url, key=key))


async def _chat(settings: Settings, conversation_id: UUID | None, url: str | None, key: str | None) -> int:
    import aiohttp

    from api.cli.remote import Remote
    from api.cli.talk import HELP, Talk
    from api.cli.transcript import Transcript
    from api.cli.typed_lines import TypedLines

    lines, transcript = TypedLines(), Transcript()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CALL_S)) as session:
        remote = Remote(session, url or _url_of(settings), key)
        await remote.greet()
        talk = Talk(remote, lines, transcript)
        with lines.editing():
            if lines.interactive:
                transcript.note(HELP)
                _interrupt(talk)
            try:
                await talk.run(conversation_id)
            except asyncio.CancelledError:
                print()
            talk.say_goodbye()
    return 0


def _interrupt(talk: Talk) -> None:
    """Let Ctrl-C stop the agent, or else leave."""
    sitting = asyncio.current_task()
    assert sitting is not None
    leave = sitting.cancel

    def receive() -> None:
        if not talk.interrupt():
            leave()

    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, receive)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leave)


def _url_of(settings: Settings) -> str:
    host = EVERYWHERE.get(settings.host, settings.host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"
