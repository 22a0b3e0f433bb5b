"""What tools return that nobody thought of: kept as text, or an error that says why not, and never a hang."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from commands.agent.tool_run import MAX_RESULT_BYTES, run_tool
from domain.parts import Part, text_of, text_part
from domain.scope import LOCAL
from domain.tool_values import MAX_VALUES, NotStorable, as_json
from domain.tools import ToolContext, as_tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from domain.decisions import Outcome


async def _record(name: str, n: int, value: Any) -> None:
    """Take every step."""


async def _run(function: Callable[..., Any]) -> Outcome:
    return await run_tool(as_tool(function), {}, ToolContext("call_1", UUID(int=1), LOCAL, {}, record=_record))


def _holding_itself(*keys: str) -> dict[str, Any]:
    """Return a dict that holds itself, several times, under these keys."""
    endless: dict[str, Any] = {}
    endless |= {key: [endless, endless, {"again": endless}] for key in keys}
    return endless


def _unfolding() -> list[Any]:
    """Return a small graph of lists that would be 2 ** 60 values as JSON."""
    unfolding: list[Any] = []
    for _ in range(60):
        unfolding = [unfolding, unfolding]
    return unfolding


@pytest.mark.parametrize(
    "value",
    [
        _holding_itself("a"),
        _holding_itself("\ud800", "b"),
        _unfolding(),
        itertools.count(),
        {"rows": (n for n in itertools.count())},
        object(),
        ValueError("a secret of ours"),
        b"\xff\xfe",
        int,
    ],
)
@pytest.mark.parametrize("later", [False, True])
async def test_l11_what_is_no_json_is_an_error_at_once_that_says_that_the_tool_ran(value: Any, later: bool) -> None:
    def give() -> object:
        """Give."""
        return value

    async def give_later() -> object:
        """Give."""
        return value

    give_later.__name__ = "give"
    outcome = await _run(give_later if later else give)

    assert outcome.status == "error"
    assert text_of(outcome.content).startswith("give ran, but made a value that ")
    assert "secret" not in text_of(outcome.content)


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit, type("Odd", (BaseException,), {})])
async def test_t11_what_is_no_exception_ends_the_call_and_not_the_worker(
    error: type[BaseException], later: bool
) -> None:
    def give() -> None:
        """Give."""
        raise error("a secret of ours")

    async def give_later() -> None:
        """Give."""
        raise error("a secret of ours")

    give_later.__name__ = "give"
    outcome = await _run(give_later if later else give)

    assert outcome.status == "error"
    assert text_of(outcome.content) == f"give failed ({error.__name__}); it may have taken effect."


def test_the_same_value_twice_is_no_value_that_holds_itself() -> None:
    shared = [1]
    assert as_json({"a": shared, "b": (shared, shared)}) == {"a": [1], "b": [[1], [1]]}


def test_more_values_than_anybody_could_read_are_refused() -> None:
    with pytest.raises(NotStorable, match="1,000,000 values"):
        as_json([0] * (MAX_VALUES + 1), max_bytes=None)


async def test_of_many_parts_too_large_together_the_model_is_told_how_many_are_missing() -> None:
    pages = [text_part(str(number) * 150_000) for number in range(6)]

    def read() -> list[Part]:
        """Read."""
        return pages

    content = (await _run(read)).content

    assert content[:3] == pages[:3]
    assert "[truncated: 150,002 bytes in all]" in str(content[3].text)
    assert content[4:] == [text_part("[2 more parts left out]")]
    assert sum(len(part.model_dump_json(exclude_none=True)) for part in content) <= MAX_RESULT_BYTES
