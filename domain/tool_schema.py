"""JSON Schemas from annotations: the arguments of a tool, and the answer that it waits for."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUndefinedAnnotation
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticOmit, to_json

from domain.errors import InvalidInput
from domain.text import clean
from domain.tool_context import ToolContext
from domain.tool_values import NotStorable, as_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic.json_schema import JsonSchemaWarningKind
    from pydantic_core import ErrorDetails

_STRICT = ConfigDict(extra="forbid", hide_input_in_errors=True, arbitrary_types_allowed=False)
_SHOWN_PROBLEMS = 5
_NOT_TYPES = (PydanticUserError, PydanticUndefinedAnnotation, PydanticOmit, TypeError, ValueError, NameError)


class ToolDefinitionError(Exception):
    """A tool is defined in a way that cannot work; the message names the tool and says what to change."""


class _Schema(GenerateJsonSchema):
    """Schemas without the titles that pydantic makes up; a member of a union without a schema is an error."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        if kind != "non-serializable-default":
            raise TypeError(detail)


class Arguments:
    """The arguments of a tool's function: their JSON Schema, and what fits it.

    `context_name` is the parameter that takes the `ToolContext`, which no caller gives.
    """

    def __init__(self, tool: str, function: Callable[..., Any], descriptions: Mapping[str, str]) -> None:
        hints = hints_of(tool, function)
        self.context_name: str | None = None
        self._fields: dict[str, str] = {}
        fields: dict[str, Any] = {}
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                _refuse(tool, f"argument {name!r} is *args, **kwargs or positional-only: name each argument")
            if name not in hints:
                _refuse(tool, f"argument {name!r} has no annotation: give its type (ToolContext for the context)")
            if hints[name] is ToolContext:
                if self.context_name is not None:
                    _refuse(tool, f"arguments {self.context_name!r} and {name!r} both take the context: keep one")
                self.context_name = name
                continue
            schema_of(tool, f"argument {name!r}", hints[name])
            # field names of our own: an argument may be called `schema`, `model_config` or `_x`
            self._fields[name] = f"arg_{len(fields)}"
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[self._fields[name]] = (Annotated[hints[name], Field(alias=name)], default)
        self._model: type[BaseModel] = create_model(tool, __config__=_STRICT, **fields)
        self.schema = self._model.model_json_schema(schema_generator=_Schema)
        self.schema.pop("title", None)
        for name, text in descriptions.items():
            if name in self.schema["properties"]:
                self.schema["properties"][name].setdefault("description", text)

    def validate(self, raw: Any) -> dict[str, Any]:
        """Return `raw` as JSON that fits the schema strictly; raises `InvalidInput`."""
        args = self._object(raw)
        self._parse(args, strict=True)
        return args

    def coerce(self, raw: Any) -> dict[str, Any]:
        """Do as `validate`, but turn what only has a near type (``"5"`` for an integer) into what fits."""
        try:
            return self.validate(raw)
        except InvalidInput:
            parsed = self._parse(self._object(raw), strict=False)
            return self.validate(parsed.model_dump(mode="json", by_alias=True, exclude_unset=True))

    def bind(self, args: Any) -> dict[str, Any]:
        """Return the Python values that the function takes, defaults filled in; raises `InvalidInput`."""
        parsed = self._parse(self._object(args), strict=False)
        return {name: getattr(parsed, field) for name, field in self._fields.items()}

    def _object(self, raw: Any) -> dict[str, Any]:
        args = _json("args", raw)
        if not isinstance(args, dict):
            raise InvalidInput("args", "must be a JSON object")
        return args

    def _parse(self, args: dict[str, Any], *, strict: bool) -> BaseModel:
        try:
            return self._model.model_validate_json(to_json(args), strict=strict)
        except ValidationError as exc:
            raise _invalid("args", exc) from None


class Answer:
    """What a person or client answers: the JSON Schema of the return annotation (None: anything), and what fits it."""

    def __init__(self, tool: str, function: Callable[..., Any]) -> None:
        annotation = hints_of(tool, function).get("return", Any)
        self.schema = schema_of(tool, "the return annotation", annotation) or None
        self._adapter: TypeAdapter[Any] = TypeAdapter(annotation)

    def validate(self, raw: Any) -> Any:
        """Return `raw` as JSON that fits the schema strictly; raises `InvalidInput`."""
        answer = _json("answer", raw)
        try:
            self._adapter.validate_json(to_json(answer), strict=True)
        except ValidationError as exc:
            raise _invalid("answer", exc) from None
        return answer


def hints_of(tool: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the resolved annotations of a function; raises `ToolDefinitionError`."""
    known = {"ToolContext": ToolContext, **getattr(inspect.unwrap(function), "__globals__", {})}
    try:
        return get_type_hints(function, globalns=known, include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as exc:
        _refuse(tool, f"an annotation cannot be resolved, import its type at the module's top level ({exc})", exc)


def schema_of(tool: str, what: str, annotation: Any) -> dict[str, Any]:
    """Return the JSON Schema of an annotation; raises `ToolDefinitionError` naming `what` has it."""
    try:
        schema = TypeAdapter(annotation).json_schema(schema_generator=_Schema)
    except _NOT_TYPES as exc:
        said = str(exc).partition("\n")[0]
        _refuse(tool, f"{what} has a type without a JSON Schema, use plain types or a pydantic model ({said})", exc)
    schema.pop("title", None)
    return schema


def _refuse(tool: str, message: str, cause: BaseException | None = None) -> NoReturn:
    raise ToolDefinitionError(f"tool {tool!r}: {message}") from cause


def _json(field: str, raw: Any) -> Any:
    try:
        return as_json(raw)
    except NotStorable as exc:
        raise InvalidInput(field, str(exc)) from None


def _invalid(root: str, error: ValidationError) -> InvalidInput:
    problems = error.errors(include_input=False, include_url=False)
    said = [(".".join([root, *(_name(part) for part in problem["loc"])]), _message(problem)) for problem in problems]
    (field, message), *others = said[:_SHOWN_PROBLEMS]
    return InvalidInput(field, message, *others)


def _name(part: int | str) -> str:
    return str(clean(str(part)))[:100]


def _message(problem: ErrorDetails) -> str:
    if problem["type"] == "union_tag_invalid":  # its text repeats the tag that was given
        return f"the tag must be one of {problem['ctx']['expected_tags']}"
    return problem["msg"].removeprefix("Value error, ")
