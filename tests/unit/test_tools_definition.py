"""What makes a tool, and what is refused with a clear error."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Iterator  # noqa: TC003  # the tools' annotations are read
from typing import TYPE_CHECKING, Any

import pytest

from domain.errors import InvalidInput
from domain.tools import Tool, ToolContext, ToolDefinitionError, Toolset, as_tool, marked_tool, tool

if TYPE_CHECKING:
    from decimal import Decimal


def search(query: str) -> list[str]:
    """Search the knowledge base."""
    return [query]


@tool
def bare(query: str) -> str:
    """Do it bare."""
    return query.upper()


@tool(
    gate="always", timeout_s=30, approval_timeout_s=0, rerun=False, requires_user=True, name="pay", description="Pay!"
)
async def charge(ctx: ToolContext, amount: int) -> str:
    """Charge."""
    return f"{amount}"


def test_a_plain_function_is_a_tool_with_the_defaults() -> None:
    made = as_tool(search)

    assert (made.name, made.description, made.executor, made.gate) == (
        "search",
        "Search the knowledge base.",
        "server",
        "never",
    )
    assert (made.rerun, made.timeout_s, made.approval_timeout_s, made.requires_user) == (True, None, None, False)
    assert (made.is_async, made.response_schema) == (False, None)


async def test_a_decorated_function_stays_callable_and_is_its_own_tool() -> None:
    made = as_tool(charge)

    assert bare("x") == "X"
    assert as_tool(bare).function is bare
    assert (made.name, made.description, made.gate, made.rerun) == ("pay", "Pay!", "always", False)
    assert (made.timeout_s, made.approval_timeout_s, made.requires_user, made.is_async) == (30, 0, True, True)
    assert marked_tool(search) is None


def test_a_tool_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        as_tool(bare).gate = "always"  # type: ignore[misc]  # the point


def test_a_decorator_above_tool_is_what_runs_and_the_options_stay() -> None:
    def shouting(function: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(function)
        def wrapper(**given: Any) -> str:
            return function(**given) + "!"

        return wrapper

    @shouting
    @tool(gate="always")
    def greet(name: str) -> str:
        """Greet."""
        return name

    made = as_tool(greet)

    assert made.gate == "always"
    assert made.function(name="Ada") == "Ada!"


def test_a_bound_method_is_a_tool() -> None:
    class Shop:
        def price(self, item: str) -> int:
            """Tell a price."""
            return len(item)

    made = as_tool(Shop().price, gate="always")

    assert list(made.arguments.schema["properties"]) == ["item"]
    assert made.function(item="pen") == 3


def test_the_context_is_recognised_where_only_type_checkers_import_it() -> None:
    namespace: dict[str, Any] = {}
    exec(
        "from __future__ import annotations\ndef look(c: ToolContext, what: str) -> str:\n    return what",
        namespace,
    )

    assert as_tool(namespace["look"]).arguments.context_name == "c"


def _args(*args: int) -> None: ...
def _kwargs(**kwargs: int) -> None: ...
def _positional(a: int, /) -> None: ...
def _unannotated(a) -> None: ...  # type: ignore[no-untyped-def]  # the case
def _callable(a: Callable[[], int]) -> None: ...
def _class(a: Toolset) -> None: ...
def _union(a: int | Callable[[], int]) -> None: ...
def _unresolved(a: Decimal) -> None: ...
def _two_contexts(a: ToolContext, b: ToolContext) -> None: ...
def _generator(a: int) -> Iterator[int]:
    yield a


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_args, "'_args': argument 'args' is .*name each argument"),
        (_kwargs, "argument 'kwargs'"),
        (_positional, "argument 'a' is .*positional-only"),
        (_unannotated, "argument 'a' has no annotation"),
        (_callable, "argument 'a' has a type without a JSON Schema"),
        (_class, "argument 'a' has a type without a JSON Schema"),
        (_union, "argument 'a' has a type without a JSON Schema"),
        (_unresolved, "an annotation cannot be resolved.*Decimal"),
        (_two_contexts, "'a' and 'b' both take the context"),
        (_generator, "does not yield"),
        (lambda: 1, "name"),
        (functools.partial(search, query="x"), "'partial' object"),
        (Toolset, "object: a tool is a function"),
        ("search", "'str' object"),
        (5, "'int' object"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused(function: Any, message: str) -> None:
    with pytest.raises(ToolDefinitionError, match=message) as raised:
        as_tool(function)
    assert "\n" not in str(raised.value)


def _no_json(question: str) -> Toolset: ...  # type: ignore[empty-body]  # never called


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"executor": "human", "gate": "always"}, "human tool cannot be gated"),
        ({"executor": "human", "gate": lambda args: False}, "human tool cannot be gated"),
        ({"executor": "robot"}, "executor is one of"),
        ({"executor": "client", "timeout_s": 5}, "for server tools"),
        ({"executor": "human", "rerun": False}, "for server tools"),
        ({"executor": "client", "requires_user": True}, "for server tools"),
        ({"gate": "sometimes"}, "gate is never, always"),
        ({"gate": None}, "gate is never, always"),
        ({"gate": lambda: True}, "takes one argument"),
        ({"gate": charge}, "no coroutine function"),
        ({"timeout_s": 0}, "timeout_s is more than 0"),
        ({"timeout_s": float("nan")}, "timeout_s is a number"),
        ({"timeout_s": "5"}, "timeout_s is a number"),
        ({"timeout_s": True}, "timeout_s is a number"),
        ({"approval_timeout_s": -1}, "approval_timeout_s is 0 to ten years"),
        ({"name": "no spaces"}, "a name has 1 to 64"),
        ({"name": ""}, "a name has 1 to 64"),
        ({"name": "x" * 65}, "a name has 1 to 64"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolDefinitionError, match=message):
        as_tool(search, **options)


def test_an_answer_without_a_schema_is_refused_where_somebody_answers() -> None:
    assert as_tool(_no_json)
    with pytest.raises(ToolDefinitionError, match="the return annotation has a type without a JSON Schema"):
        as_tool(_no_json, executor="human")


def _gated(gate: Any) -> Tool:
    def transfer(amount: int, to: str = "savings") -> None:
        """Transfer."""

    return as_tool(transfer, gate=gate)


def test_a_gate_decides_on_the_arguments_as_the_function_gets_them() -> None:
    made = _gated(lambda args: args["amount"] > 100 or args["to"] != "savings")

    assert not made.gated_for({"amount": 100})
    assert made.gated_for({"amount": 101})
    assert made.gated_for({"amount": 1, "to": "ben"})
    assert _gated("always").gated_for({"amount": 1})
    assert not _gated("never").gated_for({"amount": 1})


def test_a_gate_that_raises_counts_as_gated_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert _gated(lambda args: args["nothing"]).gated_for({"amount": 1})

    assert "gate of tool transfer failed" in caplog.text


def test_a_toolset_keeps_its_order_and_finds_by_name() -> None:
    tools = Toolset([search, bare, charge])

    assert tools.names == ("search", "bare", "pay")
    assert [made.name for made in tools] == list(tools.names)
    assert [definition["function"]["name"] for definition in tools.definitions()] == list(tools.names)
    assert tools.get("pay") is as_tool(charge)
    assert tools.get("charge") is None
    assert (len(tools), "bare" in tools, "charge" in tools) == (3, True, False)


def test_a_selection_has_the_named_tools_all_for_none_and_refuses_unknown_names() -> None:
    tools = Toolset([search, bare])

    assert tools.select(None) is tools
    assert tools.select([]).names == ()
    assert tools.select(["bare", "search", "bare"]).names == ("bare", "search")
    assert tools.existing(["gone", "bare"]).names == ("bare",)
    with pytest.raises(InvalidInput, match="has: search, bare") as raised:
        tools.select(["bare", "secret-value"])
    assert raised.value.field == "settings.tools.1"
    assert "secret-value" not in str(raised.value)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="two tools have this name"):
        Toolset([search, as_tool(bare, name="search")])
