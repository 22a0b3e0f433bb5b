"""The dialogue of `chat`: what a person types becomes messages, decisions and commands."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from api.cli.decisions import EditWanted, NotUnderstood, decision, edit, prompt_for
from api.cli.followed import Followed
from api.cli.remote import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.cli.remote import Remote
    from api.cli.transcript import Transcript
    from api.cli.typed_lines import TypedLines
    from domain.conversation_state import OpenCall

HELP = "/cancel stops the agent, /new begins another conversation, /quit leaves (Ctrl-C and Ctrl-D too)"
PROMPT = "> "


class Talk:
    """One sitting: with one conversation after the other."""

    def __init__(self, remote: Remote, lines: TypedLines, transcript: Transcript) -> None:
        self._remote, self._lines, self._transcript = remote, lines, transcript
        self._followed: Followed | None = None
        self._leaving = AsyncExitStack()
        self._seq = 0
        self._prompting = False
        self._stop: asyncio.Task[None] | None = None

    async def run(self, conversation_id: UUID | None) -> None:
        """Talk until the person leaves. Raises `CommandFailed` when it cannot go on."""
        try:
            if conversation_id is not None:
                await self._follow(conversation_id)
            while True:
                if self._followed is not None:
                    await self._followed.rested(self._seq)
                call = self._followed.question if self._followed else None
                line = await self._ask(prompt_for(call) if call else PROMPT)
                if line is None or line.strip() in ("/quit", "/exit"):
                    break
                await self._take(line, call)
        finally:
            await self._leaving.aclose()

    def interrupt(self) -> bool:
        """Stop the agent, if it is at work and was not told so already; False: leave."""
        if self._prompting or self._stop is not None:
            return False
        self._stop = asyncio.create_task(self._take("/cancel", None))
        return True

    async def _ask(self, prompt: str, prefill: str = "") -> str | None:
        self._prompting, self._stop = True, None
        try:
            if not self._lines.interactive:
                return await self._lines.next(prompt)
            with self._transcript.prompting(lambda: prompt + self._lines.typed_so_far()):
                return await self._lines.next(prompt, prefill)
        finally:
            self._prompting = False

    async def _take(self, line: str, call: OpenCall | None) -> None:
        try:
            match line.strip().split():
                case []:
                    pass
                case ["/help"]:
                    self._transcript.note(HELP)
                case ["/new"]:
                    await self._leave()
                case ["/cancel"]:
                    await self._cancel()
                case [word, *_] if word.startswith("/") and not (call and word == "/reject"):
                    self._transcript.note(f"there is no {word}: {HELP}")
                case _:
                    await (self._decide(call, line) if call else self._send(line))
        except NotUnderstood as error:
            self._transcript.note(str(error))
        except Refused as refused:
            self._transcript.note(f"refused: {refused}", "red")

    async def _send(self, text: str) -> None:
        message = {"content": text, "message_id": str(uuid4())}
        if self._lines.interactive:
            self._transcript.mine.add(message["message_id"])
        if self._followed is None:
            conversation_id = uuid4()
            body: Mapping[str, Any] = {"id": str(conversation_id), "message": message}
            answer = await self._remote.call("POST", "/v1/conversations", body)
            self._transcript.note(f"conversation {conversation_id}")
            await self._follow(conversation_id)
        else:
            answer = await self._remote.call("POST", f"{self._path}/messages", message)
        self._seq = answer["seq"]

    async def _decide(self, call: OpenCall, line: str) -> None:
        if self._followed is None or not self._followed.asks(call):
            self._transcript.note("that was decided meanwhile")
            return
        try:
            body = decision(call, line)
        except EditWanted:
            arguments = await self._ask("arguments as JSON: ", json.dumps(call.args, ensure_ascii=False))
            if not (arguments or "").strip():
                return
            body = edit(arguments or "")
        answer = await self._remote.call("POST", f"{self._path}/tool-calls/{call.tool_call_id}/resolution", body)
        self._seq = answer["seq"]

    async def _cancel(self) -> None:
        if self._followed is None:
            return
        answer = await self._remote.call("POST", f"{self._path}/cancel", {})
        if not answer["cancelled"]:
            self._transcript.note("nothing runs")
        self._seq = answer["seq"]

    async def _follow(self, conversation_id: UUID) -> None:
        self._followed = await self._leaving.enter_async_context(
            Followed(self._remote, self._transcript, conversation_id)
        )

    async def _leave(self) -> None:
        await self._leaving.aclose()
        self._followed, self._seq = None, 0

    @property
    def _path(self) -> str:
        assert self._followed is not None
        return f"/v1/conversations/{self._followed.conversation_id}"

    def say_goodbye(self) -> None:
        """Say how to come back, however it was left."""
        if self._followed is None:
            return
        waits = "an answer is still waited for; " if self._followed.question else ""
        self._transcript.note(f"{waits}go on with: rejoinder chat {self._followed.conversation_id}")
