"""Language models through LiteLLM, one streamed try at a time, on an event loop of its own in one thread.

LiteLLM stalls the loop that it runs on for up to 100 ms a call and takes seconds to import; here nobody else pays.
"""

from __future__ import annotations

import asyncio
import copy
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from commands.agent.model import Delta, ModelError, ModelReply
from domain.conversation_settings import ModelParams
from domain.usage import Usage
from infra.hand_over import HandOver
from infra.litellm_library import ReportedUsage, close_clients, load_litellm, look_up_window, warm_litellm
from infra.loop_thread import LoopThread
from infra.model_errors import model_error
from infra.reply_assembly import ReplyAssembly

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable
    from typing import TypeVar

    from commands.agent.model import ModelRequest

    T = TypeVar("T")

Item = Delta | Usage | ModelReply | ModelError


class LiteLLMModel:
    """The port `Model` by LiteLLM; without `api_base` or `api_key` the provider's own variables count."""

    def __init__(self, *, api_base: str | None = None, api_key: str | None = None) -> None:
        self._connection = {"api_base": api_base, "api_key": api_key}
        self._thread = LoopThread("litellm", at_end=close_clients)
        self._usage_senders: set[str] = set()
        self._windows: dict[str, int | None] = {}

    async def warm(self) -> None:
        """Import LiteLLM in its thread and make it ready, which takes seconds; calls that come first just wait."""
        await asyncio.wrap_future(self._thread.submit(warm_litellm))

    async def window_of(self, model: str) -> int | None:
        """Return how many tokens a request to the model may have, by LiteLLM's own list; None if it is not in it."""
        if model not in self._windows:
            self._windows[model] = await asyncio.wrap_future(self._thread.submit(lambda: look_up_window(model)))
        return self._windows[model]

    async def close(self) -> None:
        """End running streams with a `ModelError`, and close all connections."""
        await self._thread.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Usage | ModelReply, None]:
        """Make one try: deltas as they come, then one `ModelReply`; closing the generator closes the upstream.

        Raises `ModelError`.
        """
        items = HandOver[Item]()
        trying = self._thread.submit(lambda: self._try(request, items))
        try:
            while True:
                for item in await items.take():
                    if isinstance(item, ModelError):
                        raise item
                    yield item
                    if isinstance(item, ModelReply):
                        return
        finally:
            trying.cancel()

    async def _try(self, request: ModelRequest, items: HandOver[Item]) -> None:
        """Make the try in the thread and hand over what comes of it; errors too, for theirs has no traceback."""
        chunks: Any = None
        reported = ReportedUsage(request.model)
        whole = asyncio.timeout(request.max_total_s)
        try:
            acompletion = load_litellm().acompletion
            started = time.monotonic()
            async with whole:
                chunks = await _within(request.max_gap_s, acompletion(**self._arguments(request)))
                assembly, finish = await self._receive(chunks, request, reported, items)
            reported.read(chunks)
            items.put(self._reply(request, assembly, finish, reported.usage, started))
        except asyncio.CancelledError:
            with suppress(RuntimeError):  # the caller's loop may be closed: nobody is left to tell
                items.put(ModelError("unavailable", "the connection to the model was closed", retryable=False))
            raise
        except ModelError as error:
            items.put(error)
        except TimeoutError:
            reported.read(chunks)
            items.put(_too_late(request, reported.usage, whole=whole.expired()))
        except Exception as exc:
            reported.read(chunks)
            items.put(model_error(exc, usage=reported.usage))
        finally:
            if chunks is not None:
                await chunks.aclose()

    def _arguments(self, request: ModelRequest) -> dict[str, Any]:
        if strange := sorted(request.params.keys() - ModelParams.model_fields.keys()):
            raise ModelError("bad_request", f"model_params cannot set {', '.join(strange)[:200]}", retryable=False)
        return {
            **request.params,
            **self._connection,
            "model": request.model,
            # LiteLLM rewrites messages in place; the caller sends them again
            "messages": copy.deepcopy(list(request.messages)),
            "tools": copy.deepcopy(list(request.tools)) or None,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_retries": 0,
            "num_retries": 0,
            # ours shall be the first: its error says what happened
            "timeout": request.max_gap_s + 5,
        }

    async def _receive(
        self, chunks: Any, request: ModelRequest, reported: ReportedUsage, items: HandOver[Item]
    ) -> tuple[ReplyAssembly, str | None]:
        """Hand the deltas over; return the whole and the reason why it ended, None when the stream just stopped."""
        assembly, finish = ReplyAssembly(), None
        while (chunk := await _within(request.max_gap_s, anext(chunks, None))) is not None:
            if usage := reported.read(chunks):  # first: who is shown the chunk's words may stop the call
                items.put(usage)
            for choice in chunk.choices[:1]:
                for delta in assembly.add(choice.delta):
                    items.put(delta)
                finish = choice.finish_reason or finish
            await items.room()
        return assembly, finish if _has_finished(chunks) else None

    def _reply(
        self, request: ModelRequest, assembly: ReplyAssembly, finish: str | None, usage: Usage | None, started: float
    ) -> ModelReply:
        if finish is None or (usage is None and request.model in self._usage_senders):
            raise ModelError("truncated", "the reply ended before it was whole", retryable=False, usage=usage)
        if usage is not None:
            self._usage_senders.add(request.model)
        return ModelReply(
            content=assembly.content(),
            tool_requests=assembly.tool_requests(),
            model=request.model,
            finish_reason=finish,
            usage=usage,
            latency_ms=round((time.monotonic() - started) * 1000),
        )


def _has_finished(chunks: Any) -> bool:
    """Say whether the server sent a finish reason: LiteLLM makes up a "stop", but keeps what it really received.

    One that comes along with content, as Gemini's does, is kept under the second name (where LiteLLM makes up Gemini's
    too: of a stream of theirs that ends cleanly too early nothing tells).
    """
    return any(getattr(chunks, name, None) for name in ("received_finish_reason", "intermittent_finish_reason"))


def _too_late(request: ModelRequest, usage: Usage | None, *, whole: bool) -> ModelError:
    """Say which of the two limits passed; what took the whole time once would do so again."""
    late = f"finish within {request.max_total_s:g}" if whole else f"send anything for {request.max_gap_s:g}"
    return ModelError("unavailable", f"the model did not {late} s", retryable=not whole, usage=usage)


async def _within(seconds: float, result: Awaitable[T]) -> T:
    async with asyncio.timeout(seconds):
        return await result
