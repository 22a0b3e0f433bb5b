"""A scripted OpenAI-compatible model server: real HTTP and SSE, in the test's process or on its own.

``python -m tests.support.model_server --port 0`` prints its URL and is steered over HTTP (`RemoteModelServer`), so
that processes which get killed can share it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.support.model_script import Rule, Script, Scripted
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping


@dataclass(slots=True)
class Received:
    """A request as it came; times are of `time.monotonic`, which all processes of a machine share.

    `closed_at` is when the client went away before the answer was whole, `done_at` when it was whole.
    """

    raw: bytes
    body: dict[str, Any]
    headers: Mapping[str, str]
    arrived_at: float
    closed_at: float | None = None
    done_at: float | None = None


@dataclass(slots=True)
class ModelServer:
    """The server's script, its gates, and what it received; `url` is the base URL for a client (…/v1)."""

    url: str = ""
    script: Script = field(default_factory=Script)
    received: list[Received] = field(default_factory=list)
    _gates: dict[str, asyncio.Event] = field(default_factory=dict)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def expect(self, *answers: Scripted) -> None:
        """Queue the next answers."""
        self.script.queue.extend(answers)

    def rule(self, *rules: Rule) -> None:
        """Add rules for requests that find the queue empty."""
        self.script.rules.extend(rules)

    def open(self, gate: str) -> None:
        """Let the streams go on that wait at a gate, and those that will come to it."""
        self._gate(gate).set()

    def reset(self) -> None:
        """Forget script, gates and requests."""
        self.script = Script()
        self.received.clear()
        self._gates.clear()

    async def requests(self, at_least: int, *, timeout_s: float = PATIENCE_S) -> list[Received]:
        """Wait until so many requests have come."""
        return await self._until(lambda: len(self.received) >= at_least, timeout_s)

    async def closed(self, number: int, *, timeout_s: float = PATIENCE_S) -> float:
        """Wait until the client has left the request of that number (from 0) early; return when."""
        received = await self._until(
            lambda: len(self.received) > number and self.received[number].closed_at is not None, timeout_s
        )
        closed_at = received[number].closed_at
        assert closed_at is not None
        return closed_at

    async def _until(self, holds: Callable[[], bool], timeout_s: float) -> list[Received]:
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(holds)
        return self.received

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _gate(self, name: str) -> asyncio.Event:
        return self._gates.setdefault(name, asyncio.Event())

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        arrived_at = time.monotonic()
        raw = await request.read()
        received = Received(raw, json.loads(raw), dict(request.headers), arrived_at)
        answer = self.script.answer(received.body)  # who is told of the request may change the script
        self.received.append(received)
        try:
            await self._tell()
            if answer.status != 200:
                received.done_at = time.monotonic()
                return web.json_response({"error": answer.error}, status=answer.status, headers=answer.headers)
            response = await self._stream(request, received.body, answer)
        except (asyncio.CancelledError, ConnectionResetError):
            received.closed_at = time.monotonic()
            # the handler was cancelled: the news must get out all the same
            telling = asyncio.ensure_future(self._tell())
            await asyncio.shield(telling)
            raise
        received.done_at = time.monotonic()
        await self._tell()
        return response

    async def _stream(self, request: web.Request, body: dict[str, Any], answer: Scripted) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **answer.headers})
        await response.prepare(request)
        in_openai_format = request.path.endswith("/chat/completions")
        chunk = {"id": f"chatcmpl-{len(self.received)}", "object": "chat.completion.chunk", "created": 1}
        chunk["model"] = body.get("model")

        async def send(**fields: Any) -> None:
            await response.write(b"data: " + json.dumps(chunk | fields).encode() + b"\n\n")

        if in_openai_format:
            await send(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
        for step in answer.steps:
            if step.delta is not None:
                await send(choices=[{"index": 0, "delta": step.delta, "finish_reason": None}])
            elif step.raw is not None:
                await response.write(step.raw.encode())
            elif step.gate is not None:
                await self._gate(step.gate).wait()
            elif step.pause_s is not None:
                await asyncio.sleep(step.pause_s)
            elif step.hang:
                await asyncio.Event().wait()
            elif step.drop and request.transport is not None:
                request.transport.abort()
                return response
        if answer.finish is not None and in_openai_format:
            await send(choices=[{"index": 0, "delta": {}, "finish_reason": answer.finish}])
            if answer.usage is not None and (body.get("stream_options") or {}).get("include_usage"):
                await send(choices=[], usage=answer.usage)
            await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def _control(self, request: web.Request) -> web.Response:
        match request.match_info["what"], await request.json():
            case "expect", answers:
                self.expect(*(Scripted.model_validate(answer) for answer in answers))
            case "rule", rules:
                self.rule(*(Rule.model_validate(rule) for rule in rules))
            case "open", gate:
                self.open(gate)
            case "reset", _:
                self.reset()
            case "requests", {"at_least": at_least, "timeout_s": timeout_s}:
                received = await self.requests(at_least, timeout_s=timeout_s)
                return web.json_response([{**asdict(one), "raw": one.raw.decode()} for one in received])
            case "closed", {"number": number, "timeout_s": timeout_s}:
                return web.json_response(await self.closed(number, timeout_s=timeout_s))
            case _:
                raise web.HTTPNotFound
        return web.json_response(None)


@asynccontextmanager
async def serving(port: int = 0) -> AsyncIterator[ModelServer]:
    """Run a server on a loopback port (0 = any free one)."""
    server = ModelServer()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/chat/completions", server._complete)
    app.router.add_post("/v1/messages", server._complete)  # Anthropic's: the script's raw steps are all that is sent
    app.router.add_post("/v1/models/{model}", server._complete)  # Gemini's, likewise
    app.router.add_post("/control/{what}", server._control)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        host, bound = runner.addresses[0][:2]
        server.url = f"http://{host}:{bound}/v1"
        yield server
    finally:
        await runner.cleanup()


async def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    async with serving(parser.parse_args().port) as server:
        print(server.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main())
