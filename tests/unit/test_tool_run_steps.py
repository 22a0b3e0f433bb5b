"""Checkpoints: what a tool recorded before a crash is not done again after it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from commands.agent.tool_run import run_tool
from domain.parts import text_of
from domain.scope import LOCAL
from domain.tools import ToolContext, as_tool


class Log:
    """What one call recorded, and a context for each run of it."""

    def __init__(self) -> None:
        self.recorded: dict[str, list[Any]] = {}
        self.order: list[tuple[str, int]] = []

    async def record(self, name: str, n: int, value: Any) -> None:
        values = self.recorded.setdefault(name, [])
        assert n == len(values) + 1, "the aggregate refuses gaps and repetitions"
        await asyncio.sleep(0)  # an append takes a while
        values.append(value)
        self.order.append((name, n))

    def context(self) -> ToolContext:
        recorded = {name: tuple(values) for name, values in self.recorded.items()}
        return ToolContext("call_1", UUID(int=1), LOCAL, {}, record=self.record, recorded=recorded)


async def test_t13_values_recorded_before_a_crash_are_returned_not_recomputed() -> None:
    log, computed = Log(), []

    def compute() -> dict[Any, Any]:
        computed.append(1)
        return {"n": len(computed), 1: ("a", float("nan"))}

    first = await log.context().step("draft", compute)
    again = await log.context().step("draft", compute)

    assert first == again == {"n": 1, "1": ["a", "NaN"]}
    assert log.recorded == {"draft": [first]}


async def test_t13_the_same_name_in_a_loop_keeps_its_values_apart() -> None:
    log, sent = Log(), []

    async def send(number: int) -> int:
        sent.append(number)
        return number * 10

    async def run(stop_at: int) -> list[int]:
        context = log.context()
        return [await context.step("send", partial(send, number)) for number in range(stop_at)]

    assert await run(3) == [0, 10, 20]
    assert await run(5) == [0, 10, 20, 30, 40]
    assert sent == [0, 1, 2, 3, 4]
    assert log.order == [("send", n) for n in range(1, 6)]


async def test_t13_concurrent_steps_of_one_name_run_in_order_and_other_names_beside_them() -> None:
    log = Log()
    context, other = log.context(), asyncio.Event()

    async def slow(value: str) -> str:
        await other.wait()
        return value

    async def release() -> str:
        other.set()
        return "c"

    values = await asyncio.gather(
        context.step("a", lambda: slow("a1")), context.step("a", lambda: "a2"), context.step("b", release)
    )

    assert list(values) == ["a1", "a2", "c"]
    assert log.recorded == {"a": ["a1", "a2"], "b": ["c"]}


async def test_t13_a_step_that_failed_is_not_recorded_and_may_be_tried_again() -> None:
    log = Log()
    context = log.context()

    def fail() -> str:
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011  # raised bare above
        await context.step("fetch", fail)

    assert await context.step("fetch", lambda: "x") == "x"
    assert await log.context().step("fetch", fail) == "x"


async def test_t13_a_sync_tool_has_steps_too() -> None:
    log, computed = Log(), []

    def compute(number: int) -> int:
        computed.append(number)
        return number

    def work(ctx: ToolContext) -> list[int]:
        """Work."""
        return [ctx.step_sync("part", partial(compute, number)) for number in range(3)]

    for _ in range(2):
        outcome = await run_tool(as_tool(work), {}, log.context())
        assert text_of(outcome.content) == "[0,1,2]"
    assert computed == [0, 1, 2]


async def test_none_is_a_value() -> None:
    log, computed = Log(), []

    def compute() -> Any:
        computed.append(1)

    for _ in range(2):
        assert await log.context().step("nothing", compute) is None
    assert computed == [1]


async def test_a_step_is_bounded_and_named() -> None:
    log = Log()
    context = log.context()

    with pytest.raises(ValueError, match="larger than 64 KiB"):
        await context.step("large", lambda: "x" * 70_000)
    with pytest.raises(ValueError, match="no JSON"):
        await context.step("odd", object)
    for name in ("", "x" * 201, "started", "a\x00"):
        with pytest.raises(ValueError, match="name"):
            await context.step(name, lambda: 1)
    for _ in range(1_000):
        await context.step("many", lambda: 1)
    with pytest.raises(ValueError, match="1,000 values"):
        await context.step("more", lambda: 1)
    assert len(log.order) == 1_000


async def test_a_value_too_large_for_a_step_is_an_error_that_says_so() -> None:
    async def work(ctx: ToolContext) -> str:
        """Work."""
        return await ctx.step("large", lambda: "x" * 70_000)

    outcome = await run_tool(as_tool(work), {}, Log().context())

    assert text_of(outcome.content).startswith("work ran, but made a value that is larger than 64 KiB")


async def test_t13_a_tool_that_must_not_rerun_is_marked_before_it_runs_and_not_run_twice() -> None:
    log, ran = Log(), []

    def charge(amount: int) -> str:
        """Charge."""
        assert log.recorded == {"started": [None]}
        ran.append(amount)
        raise SystemExit

    once = as_tool(charge, rerun=False)
    await run_tool(once, {"amount": 5}, log.context())
    outcome = await run_tool(once, {"amount": 5}, log.context())

    assert ran == [5]
    assert outcome.status == "error"
    assert text_of(outcome.content) == "charge was interrupted; it may have taken effect, and is not run again."


async def test_t13_a_run_that_cannot_begin_leaves_no_mark() -> None:
    log = Log()

    def charge(amount: int) -> str:
        """Charge."""
        return str(amount)

    await run_tool(as_tool(charge, rerun=False), {"amount": "x"}, log.context())

    assert log.recorded == {}
