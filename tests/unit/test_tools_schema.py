"""The schema that a model sees, and what fits it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field, SecretStr
from typing_extensions import TypedDict  # pydantic takes the one of `typing` from Python 3.12 on

from domain.errors import InvalidInput
from domain.tools import ToolContext, as_tool


class Address(BaseModel):
    street: str
    zip_code: str = Field(default="", description="Postal code")


@dataclass
class Point:
    x: int
    y: int = 0


class Range(TypedDict):
    low: int
    high: int


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Circle(BaseModel):
    kind: Literal["circle"]


class Square(BaseModel):
    kind: Literal["square"]


def _takes(annotation: Any, default: Any = ...) -> Any:
    """Return a tool with one argument ``value`` of this annotation."""

    def function(value):  # type: ignore[no-untyped-def]  # annotated below
        return value

    function.__annotations__ = {"value": annotation}
    if default is not ...:
        function.__defaults__ = (default,)
    return as_tool(function)


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (Any, {}),
        (date, {"type": "string", "format": "date"}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Optional[str], {"anyOf": [{"type": "string"}, {"type": "null"}]}),  # noqa: UP045  # people write it
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Literal["a", "b"], {"enum": ["a", "b"], "type": "string"}),
        (list[int], {"items": {"type": "integer"}, "type": "array"}),
        (list[dict[str, float]], {"items": {"additionalProperties": {"type": "number"}, "type": "object"}}),
        (dict[str, Any], {"additionalProperties": True, "type": "object"}),
        (set[str], {"items": {"type": "string"}, "type": "array", "uniqueItems": True}),
        (Annotated[int, Field(ge=1, le=9, description="How many")], {"minimum": 1, "description": "How many"}),
    ],
)
def test_the_schema_of_an_argument_follows_its_annotation(annotation: Any, schema: dict[str, Any]) -> None:
    parameters = _takes(annotation).definition()["function"]["parameters"]

    assert schema.items() <= parameters["properties"]["value"].items()
    assert parameters["required"] == ["value"]
    assert parameters["additionalProperties"] is False
    assert "title" not in str(parameters)


@pytest.mark.parametrize("annotation", [Address, Point, Range, Colour, list[Address], Address | None])
def test_models_dataclasses_typed_dicts_and_enums_become_definitions(annotation: Any) -> None:
    parameters = _takes(annotation).arguments.schema

    assert "$ref" in str(parameters["properties"]["value"])
    assert parameters["$defs"]


def test_defaults_are_in_the_schema_and_make_arguments_optional() -> None:
    def search(query: str, limit: int = 5, tags: list[str] | None = None, *, exact: bool = False) -> str:
        """Search."""
        return query

    parameters = as_tool(search).arguments.schema

    assert list(parameters["properties"]) == ["query", "limit", "tags", "exact"]
    assert parameters["required"] == ["query"]
    assert parameters["properties"]["limit"] == {"default": 5, "type": "integer"}
    assert parameters["properties"]["tags"]["default"] is None
    assert as_tool(search).arguments.bind({"query": "x"}) == {"query": "x", "limit": 5, "tags": None, "exact": False}


def test_a_default_that_is_no_json_is_left_out_of_the_schema() -> None:
    marker = object()
    made = _takes(Any, marker)

    assert "default" not in made.arguments.schema["properties"]["value"]
    assert made.arguments.bind({})["value"] is marker


def test_a_pydantic_field_may_be_the_default() -> None:
    def take(limit: int = Field(default=3, ge=1, description="How many")) -> int:
        return limit

    made = as_tool(take)

    assert made.arguments.schema["properties"]["limit"] == {
        "default": 3,
        "description": "How many",
        "minimum": 1,
        "type": "integer",
    }
    assert made.arguments.bind({}) == {"limit": 3}


def test_a_mutable_default_is_not_shared_between_calls() -> None:
    made = _takes(list[int], [])
    made.arguments.bind({})["value"].append(1)

    assert made.arguments.bind({})["value"] == []


def test_arguments_may_have_names_that_pydantic_uses_itself() -> None:
    def odd(schema: str, model_config: int, copy: bool, _private: str, title: str, json: str) -> None:
        """Do odd things."""

    made = as_tool(odd)
    args = {"schema": "s", "model_config": 1, "copy": True, "_private": "p", "title": "t", "json": "{}"}

    assert list(made.arguments.schema["properties"]) == list(args)
    assert made.validate_args(args) == args
    assert made.arguments.bind(args) == args


def test_a_tool_without_arguments_has_an_empty_object_schema() -> None:
    def now() -> str:
        """Tell the time."""
        return ""

    assert as_tool(now).definition() == {
        "type": "function",
        "function": {
            "name": "now",
            "description": "Tell the time.",
            "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
        },
    }


def test_the_context_is_not_in_the_schema() -> None:
    def look(ctx: ToolContext, what: str) -> str:
        """Look."""
        return what

    made = as_tool(look)

    assert list(made.arguments.schema["properties"]) == ["what"]
    assert made.arguments.context_name == "ctx"
    with pytest.raises(InvalidInput, match=r"args\.ctx"):
        made.validate_args({"what": "x", "ctx": {}})


def test_argument_texts_come_from_the_docstring_and_leave_the_description() -> None:
    def send(to: str, body: Annotated[str, Field(description="Own text")], cc: str = "") -> None:
        """Send an email.

        It is sent at once.

        Args:
            to (str): The address
                of the receiver.
            body: Not this one.
            cc: Copies: comma-separated.
            other: No such argument.

        Returns:
            Nothing.
        """

    made = as_tool(send)
    texts = {name: schema.get("description") for name, schema in made.arguments.schema["properties"].items()}

    assert texts == {"to": "The address of the receiver.", "body": "Own text", "cc": "Copies: comma-separated."}
    assert made.description == "Send an email.\n\nIt is sent at once.\n\nReturns:\n    Nothing."


def test_bound_values_have_the_annotated_types() -> None:
    def take(address: Address, point: Point, day: date, colours: set[Colour]) -> None:
        """Take."""

    args = {"address": {"street": "s"}, "point": {"x": 1}, "day": "2026-11-01", "colours": ["red"]}

    assert as_tool(take).arguments.bind(args) == {
        "address": Address(street="s"),
        "point": Point(1),
        "day": date(2026, 11, 1),
        "colours": {Colour.RED},
    }
    assert as_tool(take).validate_args(args) == args


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ({"to": 5, "count": 1}, "args.to"),
        ({"to": "secret-value", "count": "secret-value"}, "args.count"),
        ({"to": "secret-value", "count": "7"}, "args.count"),
        ({"to": "secret-value", "count": True}, "args.count"),
        ({"to": "secret-value"}, "args.count"),
        ({"to": "x", "count": 1, "extra": "secret-value"}, "args.extra"),
        ({"to": "x", "count": 1, "address": {"street": ["secret-value"]}}, "args.address.street"),
        ({"to": "x", "count": 1, "shape": {"kind": "secret-value"}}, "args.shape"),
        ({"to": "x", "count": float("nan")}, "args.count"),
        ("secret-value", "args"),
        (["secret-value"], "args"),
        (None, "args"),
    ],
)
def test_h5_arguments_that_do_not_fit_are_refused_by_field_and_without_their_value(args: Any, field: str) -> None:
    def act(
        to: str,
        count: int,
        address: Address | None = None,
        shape: Annotated[Circle | Square, Field(discriminator="kind")] | None = None,
    ) -> None:
        """Act."""

    with pytest.raises(InvalidInput) as raised:
        as_tool(act).validate_args(args)

    assert raised.value.field.startswith(field)
    assert "secret-value" not in str(raised.value)
    assert str(raised.value).count("\n") == 0


def test_h5_arguments_that_fit_are_kept_as_they_were_given() -> None:
    made = _takes(SecretStr)

    assert made.validate_args({"value": "hush"}) == {"value": "hush"}
    assert made.arguments.coerce({"value": "hush"}) == {"value": "hush"}
    assert _takes(float).validate_args({"value": 1}) == {"value": 1}


@pytest.mark.parametrize(
    ("annotation", "given", "kept"),
    [(int, "5", 5), (int, 5.0, 5), (bool, "true", True), (list[int], ["1", 2], [1, 2]), (Point, {"x": "1"}, {"x": 1})],
)
def test_what_a_model_gives_with_a_near_type_becomes_what_fits(annotation: Any, given: Any, kept: Any) -> None:
    made = _takes(annotation)
    with pytest.raises(InvalidInput):
        made.validate_args({"value": given})

    coerced = made.arguments.coerce({"value": given})

    assert coerced["value"] == kept or coerced["value"] == {**kept, "y": 0}
    assert made.validate_args(coerced) == coerced


def test_l11_arguments_are_cleaned_and_bounded() -> None:
    made = _takes(Any)
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]

    assert made.validate_args({"value": {"a\ud800": "b\x00"}}) == {"value": {"a\ufffd": "b\ufffd"}}
    assert made.validate_args({"value": float("inf")}) == {"value": "Infinity"}
    with pytest.raises(InvalidInput, match="nested deeper"):
        made.validate_args({"value": deep})
    with pytest.raises(InvalidInput, match="larger than 384 KiB"):
        made.validate_args({"value": "x" * 400_000})


def _ask(annotation: Any) -> Any:
    def ask(question: str):  # type: ignore[no-untyped-def]  # annotated below
        """Ask."""

    ask.__annotations__["return"] = annotation
    return as_tool(ask, executor="human")


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [
        (str, "yes", 5),
        (int, 5, "5"),
        (bool, True, "yes"),
        (dict[str, float], {"lat": 52.5, "lon": 13}, {"lat": "north"}),
        (Literal["red", "blue"], "red", "green"),
        (list[str], ["a"], "a"),
        (Address, {"street": "s"}, {"zip_code": "1"}),
        (None, None, "x"),
        (int | None, None, "x"),
    ],
)
def test_answers_are_validated_against_the_return_annotation(annotation: Any, good: Any, bad: Any) -> None:
    made = _ask(annotation)

    assert made.response_schema
    assert made.validate_answer(good) == good
    with pytest.raises(InvalidInput) as raised:
        made.validate_answer(bad)
    assert raised.value.field.startswith("answer")


def test_without_a_return_annotation_any_answer_fits() -> None:
    def ask(question: str):  # type: ignore[no-untyped-def]  # the case
        """Ask."""

    made = as_tool(ask, executor="human")

    assert made.response_schema is None
    assert made.validate_answer({"a": ["\x00"]}) == {"a": ["\ufffd"]}
