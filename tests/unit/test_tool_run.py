"""One run of a tool: its value, its failures, its time."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import re
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from commands.agent.tool_run import MAX_RESULT_BYTES, missing_tool, run_tool
from domain.errors import Superseded
from domain.parts import Part, text_of
from domain.scope import LOCAL, SYSTEM
from domain.tools import ToolContext, ToolError, as_tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from domain.decisions import Outcome
    from domain.scope import Actor

CONVERSATION = UUID(int=1)


async def _record(name: str, n: int, value: Any) -> None:
    """Take every step."""


def _context(actor: Actor | None = None) -> ToolContext:
    return ToolContext("call_1", CONVERSATION, LOCAL, {"plan": "pro"}, record=_record, actor=actor)


async def _run(function: Callable[..., Any], args: Any = None, **options: Any) -> Outcome:
    timeout_s = options.pop("conversation_timeout_s", None)
    return await run_tool(as_tool(function, **options), args or {}, _context(), timeout_s=timeout_s)


class Address(BaseModel):
    street: str


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        ([], "[]"),
        (["ü", (1, 2)], '["ü",[1,2]]'),
        ({"a": {1: None}}, '{"a":{"1":null}}'),
        (Address(street="s"), '{"street":"s"}'),
        ([Point(1)], '[{"x":1}]'),
        ({"nan": float("nan"), "a\ud800": "b\x00"}, '{"nan":"NaN","a\ufffd":"b\ufffd"}'),
        ("\ud800\x00", "\ufffd\ufffd"),
    ],
)
async def test_the_value_of_a_tool_becomes_text(value: Any, text: str) -> None:
    def give():  # type: ignore[no-untyped-def]  # returns anything
        """Give."""
        return value

    async def give_later():  # type: ignore[no-untyped-def]  # returns anything
        """Give."""
        return value

    for function in (give, give_later):
        outcome = await _run(function)
        assert (outcome.tool_call_id, outcome.status) == ("call_1", "ok")
        assert [part.type for part in outcome.content] == ["text"]
        assert text_of(outcome.content) == text


async def test_parts_are_kept_as_they_are_but_cleaned() -> None:
    image = Part(type="image_url", image_url={"url": "data:,x"})

    async def draw() -> list[Part]:
        """Draw."""
        return [image, Part(type="text", text="a\x00")]

    async def draw_one() -> Part:
        """Draw."""
        return image

    assert (await _run(draw)).content == [image, Part(type="text", text="a\ufffd")]
    assert (await _run(draw_one)).content == [image]


async def test_a_function_gets_typed_values_the_context_and_its_own_thread() -> None:
    def look(ctx: ToolContext, address: Address, limit: int = 3) -> str:
        """Look."""
        assert threading.current_thread().daemon
        return f"{type(address).__name__} {limit} {ctx.tool_call_id} {ctx.conversation_id.int} {ctx.metadata['plan']}"

    outcome = await _run(look, {"address": {"street": "s"}})

    assert text_of(outcome.content) == "Address 3 call_1 1 pro"


async def test_a_plain_function_around_a_coroutine_is_awaited() -> None:
    async def later() -> str:
        return "later"

    def now():  # type: ignore[no-untyped-def]  # a coroutine, unnoticed
        """Do it."""
        return later()

    assert text_of((await _run(now)).content) == "later"


async def test_context_variables_reach_threads() -> None:
    turn: contextvars.ContextVar[str] = contextvars.ContextVar("turn")
    turn.set("turn 7")

    def tell() -> str:
        """Tell."""
        return turn.get()

    assert text_of((await _run(tell)).content) == "turn 7"


def _raising(error: BaseException, *, later: bool) -> Callable[..., Any]:
    def fail() -> None:
        """Fail."""
        raise error

    async def fail_later() -> None:
        """Fail."""
        raise error

    fail_later.__name__ = "fail"
    return fail_later if later else fail


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    "error",
    [KeyError("secret"), OSError("secret"), StopIteration("secret"), SystemExit("secret"), TimeoutError("secret")],
)
async def test_t11_an_exception_becomes_a_neutral_error_result_and_its_traceback_is_logged(
    error: BaseException, later: bool, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = await _run(_raising(error, later=later))

    kind = "RuntimeError" if isinstance(error, StopIteration) else type(error).__name__
    assert outcome.status == "error"
    assert text_of(outcome.content) == f"fail failed ({kind}); it may have taken effect."
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("later", [False, True])
async def test_a_tool_error_is_for_the_model_to_read(later: bool) -> None:
    outcome = await _run(_raising(ToolError("No such city: \ud800; try another."), later=later))

    assert outcome.status == "error"
    assert text_of(outcome.content) == "No such city: \ufffd; try another."


async def test_a_tool_that_cancels_itself_has_failed() -> None:
    outcome = await _run(_raising(asyncio.CancelledError(), later=True))

    assert text_of(outcome.content) == "fail failed (CancelledError); it may have taken effect."


async def test_a_value_that_is_no_json_is_an_error_that_says_that_it_ran() -> None:
    async def give() -> object:
        """Give."""
        return object()

    outcome = await _run(give)

    assert outcome.status == "error"
    assert text_of(outcome.content).startswith("give ran, but made a value that is no JSON")


async def test_t11_recorded_arguments_that_do_not_fit_the_tool_any_more_are_an_error() -> None:
    def take(amount: int) -> None:
        """Take."""

    for args in ({"amount": "x"}, {}, None, "text", {"amount": 1, "b": 2}):
        outcome = await _run(take, args)
        assert outcome.status == "error"
        assert "take did not run: its arguments do not fit its schema: args" in text_of(outcome.content)


async def test_t11_a_call_whose_tool_is_gone_or_is_for_somebody_else_by_now_is_an_error() -> None:
    def ask(question: str) -> str:
        """Ask."""
        raise AssertionError

    assert missing_tool("call_1", "gone").status == "error"
    outcome = await _run(ask, {"question": "x"}, executor="human")
    assert text_of(outcome.content) == "ask is no tool that runs on this server any more: it did not run."


async def test_a_large_result_is_cut_with_a_stub() -> None:
    async def read() -> str:
        """Read."""
        return "x" * 1_000_000

    outcome = await _run(read)

    assert re.search(r"x\n\[truncated: 1,000,\d+ bytes in all\]$", text_of(outcome.content))
    assert sum(len(part.model_dump_json()) for part in outcome.content) <= MAX_RESULT_BYTES


async def test_touched_resources_go_with_the_result_each_once_and_bounded() -> None:
    async def edit(ctx: ToolContext) -> None:
        """Edit."""
        ctx.touched("notes.txt", "read")
        ctx.touched(PurePosixPath("notes.txt"), "write")
        ctx.touched("notes.txt", "read")
        for number in range(10_000):
            ctx.touched(f"many/{number:06}", "read")
        raise ToolError("half-way")

    outcome = await _run(edit)

    assert outcome.resources[:2] == [{"path": "notes.txt", "op": "read"}, {"path": "notes.txt", "op": "write"}]
    assert 100 < len(outcome.resources) < 1_000


async def test_h11_a_tool_that_needs_a_user_does_not_run_under_the_system() -> None:
    ran = []

    def act() -> None:
        """Act."""
        ran.append(1)

    needy, any_actor = as_tool(act, requires_user=True), as_tool(act)

    refused = await run_tool(needy, {}, _context(SYSTEM))
    assert text_of(refused.content) == "act needs a user, but the system is acting: it did not run."
    assert not ran
    assert (await run_tool(needy, {}, _context())).status == "ok"
    assert (await run_tool(any_actor, {}, _context(SYSTEM))).status == "ok"


async def test_t14_a_coroutine_that_takes_too_long_is_cancelled_and_cleans_up() -> None:
    cleaned = asyncio.Event()

    async def wait() -> None:
        """Wait."""
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    outcome = await _run(wait, timeout_s=0.01, conversation_timeout_s=60)

    assert cleaned.is_set()
    assert outcome.status == "error"
    assert text_of(outcome.content) == "wait was not done after 0.01 s and was given up; it may have taken effect."


async def test_t14_a_coroutine_that_ignores_its_cancellation_is_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("commands.agent.user_run.CLEANUP_S", 0.01)
    release, ended = asyncio.Event(), asyncio.Event()

    async def insist() -> str:
        """Insist."""
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        return "too late"

    outcome = await _run(insist, timeout_s=0.01)
    assert outcome.status == "error"

    release.set()
    await ended.wait()


async def test_t14_a_thread_that_takes_too_long_is_left_behind_and_its_value_dropped() -> None:
    release, ended = threading.Event(), threading.Event()

    def block(ctx: ToolContext) -> str:
        """Block."""
        release.wait()
        try:
            ctx.step_sync("late", lambda: 1)
        except RuntimeError:
            ended.set()
        return "too late"

    outcome = await _run(block, conversation_timeout_s=0.01)
    assert outcome.status == "error"
    assert "block was not done after 0.01 s" in text_of(outcome.content)

    release.set()
    assert await asyncio.to_thread(ended.wait, 60), "a step of a run that is over is refused"


async def test_t14_tools_run_concurrently_and_one_timeout_ends_that_call_only() -> None:
    barrier = threading.Barrier(40)
    met = asyncio.Event()

    def together() -> str:
        """Meet the others: nobody passes before all have come."""
        barrier.wait(timeout=50)
        return "met"

    async def stuck() -> None:
        """Get stuck."""
        await asyncio.Event().wait()

    async def patient() -> str:
        """Wait for the others."""
        await met.wait()
        return "done"

    waiting = asyncio.create_task(_run(patient))
    outcomes = await asyncio.gather(_run(stuck, timeout_s=0.01), *(_run(together) for _ in range(40)))
    met.set()

    assert [outcome.status for outcome in outcomes] == ["error"] + ["ok"] * 40
    assert text_of((await waiting).content) == "done"


@pytest.mark.parametrize("later", [False, True])
async def test_t14_cancelling_a_run_stops_its_tool_and_gives_no_outcome(later: bool) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()
    loop, release = asyncio.get_running_loop(), threading.Event()

    async def wait() -> None:
        """Wait."""
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def block() -> None:
        """Block."""
        loop.call_soon_threadsafe(started.set)
        release.wait()

    run = asyncio.create_task(_run(wait if later else block))
    await started.wait()
    run.cancel()

    with pytest.raises(asyncio.CancelledError):
        await run
    assert cancelled.is_set() is later
    release.set()


async def test_a_refused_step_is_raised_whatever_the_tool_makes_of_it(caplog: pytest.LogCaptureFixture) -> None:
    async def superseded(name: str, n: int, value: Any) -> None:
        raise Superseded("another attempt")

    async def careless(ctx: ToolContext) -> str:
        """Care for nothing."""
        try:
            await ctx.step("a", lambda: 1)
        except Exception:
            return "fine"
        return "fine"

    async def honest(ctx: ToolContext) -> str:
        """Care."""
        return await ctx.step("a", lambda: "x")

    for function in (careless, honest):
        context = ToolContext("call_1", CONVERSATION, LOCAL, {}, record=superseded)
        with pytest.raises(Superseded):
            await run_tool(as_tool(function), {}, context)
    with pytest.raises(Superseded):
        await run_tool(
            as_tool(honest, rerun=False), {}, ToolContext("call_1", CONVERSATION, LOCAL, {}, record=superseded)
        )
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_t14_a_tool_that_was_left_behind_does_not_keep_the_process_alive() -> None:
    program = """
import asyncio, threading, uuid
from commands.agent.tool_run import run_tool
from domain.scope import LOCAL
from domain.tools import ToolContext, as_tool

def block() -> None:
    threading.Event().wait()

async def main():
    context = ToolContext("call_1", uuid.uuid4(), LOCAL, {}, record=None)
    print((await run_tool(as_tool(block), {}, context, timeout_s=0.01)).status)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)

    assert done.stdout == "error\n"
